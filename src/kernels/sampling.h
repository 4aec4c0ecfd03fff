#pragma once

/// @file
/// From a row of logits to a token. Plain functions, any thread; one scratch per thread, no allocation once it is warm.
/// The draw depends on (logits, parameters, seed, position) only, never on what else is in the batch.
/// Order: bias, penalties, what is not allowed, temperature, top-k, top-p (of the mass that top-k left), min-p, draw.
/// "Likelier" means a higher logit, then the lower id. The draw walks the remaining tokens in order of id. Non-goals:
/// stop rules, grammars (they say which tokens are allowed), detokenising.

#include <cstdint>
#include <span>
#include <vector>

namespace kvist::kernels {

struct SamplingParams {
  float temperature = 1.0f;         ///< 0 (or less) = greedy: the highest logit, lowest id among equals.
  uint32_t top_k = 0;               ///< Keep the k likeliest; 0 = all.
  float top_p = 1.0f;               ///< Keep the fewest likeliest tokens whose mass reaches top_p; >= 1 = all.
  float min_p = 0.0f;               ///< Keep tokens at least min_p times as likely as the likeliest; 0 = all.
  float repetition_penalty = 1.0f;  ///< Tokens of prompt or output: positive logits divided by it, others multiplied.
  float presence_penalty = 0.0f;    ///< Subtracted once from tokens of the output.
  float frequency_penalty = 0.0f;   ///< Subtracted from tokens of the output once per occurrence.
  uint64_t seed = 0;                ///< With the position it fixes the draw.
};

/// How often a token occurs in the text so far.
struct TokenUse {
  uint32_t token;
  uint32_t in_prompt, in_output;
};

struct LogitBias {
  uint32_t token;
  float bias;  ///< Added to the logit; -infinity forbids the token.
};

/// A token and the natural log of its probability under softmax of the raw logits.
struct TokenLogprob {
  uint32_t token;
  float logprob;
};

/// One candidate of the draw.
struct Candidate {
  float logit;
  float weight;  ///< exp((logit - highest logit) / temperature)
  uint32_t token;
};

/// Reused memory of one thread.
struct SamplingScratch {
  std::vector<float> logits;          ///< [vocab] after bias and penalties.
  std::vector<Candidate> candidates;  ///< What top-k left, in order of token.
  std::vector<float> chosen;          ///< Its logits.
  std::vector<float> weights;         ///< [vocab] or [chosen] as Candidate::weight; 0 where a filter took it out.
  std::vector<double> masses;         ///< Sums of consecutive weights.
  std::vector<Candidate> ranked;      ///< Likeliest first, as far as a filter needs.

  /// Takes all memory that a vocabulary of this size can need.
  void Reserve(size_t vocab_size);
};

/// Chooses a token. NaN and -infinity are never chosen while any logit is higher; with no such logit the answer is
/// ArgMax. Should logits of +infinity exist, they share the draw equally. Entries of `uses` and `biases` beyond the
/// vocabulary are ignored; each token stands at most once in each.
/// @param logits    [vocab], not empty, not changed.
/// @param position  index of the token to be drawn; hashed with the seed.
/// @param allowed   a bit for each token, [(vocab + 31) / 32], of which one is set: the others are never chosen,
///                  whatever the logits are. Empty = all are allowed.
uint32_t SampleToken(std::span<const float> logits, const SamplingParams& params, std::span<const TokenUse> uses,
                     std::span<const LogitBias> biases, uint64_t position, SamplingScratch& scratch,
                     std::span<const uint32_t> allowed = {});

/// The highest logit that is not NaN, lowest id among equals; 0 when all are NaN.
uint32_t ArgMax(std::span<const float> logits);

/// log(sum(exp(logit))) over the logits that are not NaN, in double; the log probability of token i is logits[i] minus
/// this.
double LogSumExp(std::span<const float> logits);

/// Log probability of one token; -infinity for a NaN logit.
float LogprobOf(std::span<const float> logits, double log_sum_exp, uint32_t token);

/// The n likeliest tokens, likeliest first; NaN and -infinity are left out. `out` is cleared and filled.
void TopLogprobs(std::span<const float> logits, double log_sum_exp, uint32_t n, SamplingScratch& scratch,
                 std::vector<TokenLogprob>& out);

}  // namespace kvist::kernels
