#include "kernels/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/prng.h"
#include "kernels/scalar_math.h"

namespace kvist::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Strict order of the filters: higher logit first, then lower id. Neither logit is NaN.
bool Likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

bool ById(const Candidate& a, const Candidate& b) {
  return a.token < b.token;
}

/// The highest value that is not NaN; -infinity when there is none.
float MaxOf(std::span<const float> values) {
  constexpr size_t kLanes = 16;  // Independent lanes, so that the compiler may use vectors.
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, -kInfinity);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
  }
  for (; i < values.size(); ++i) lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
  return *std::max_element(lanes, lanes + kLanes);
}

/// The `count` likeliest numbers of a row, in no particular order. One pass with a rising threshold: the buffer is cut
/// back to `count` whenever it has doubled.
void SelectTop(std::span<const float> logits, size_t count, std::vector<Candidate>& out) {
  out.clear();
  if (count == 0) return;
  size_t full = 2 * count + 64;
  auto cut = [&out, count] {
    std::nth_element(out.begin(), out.begin() + static_cast<ptrdiff_t>(count - 1), out.end(), Likelier);
    out.resize(count);
  };
  float threshold = -kInfinity;  // Ids rise, so an equal logit that comes later ranks lower and may be skipped.
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > threshold)) continue;
    out.push_back({logits[i], 0, static_cast<uint32_t>(i)});
    if (out.size() < full) continue;
    cut();
    threshold = out.back().logit;
  }
  if (out.size() > count) cut();
}

void ApplyBiases(std::span<const LogitBias> biases, std::vector<float>& logits) {
  for (const LogitBias& entry : biases) {
    if (entry.token < logits.size()) logits[entry.token] += entry.bias;
  }
}

void ApplyPenalties(std::span<const TokenUse> uses, const SamplingParams& params, std::vector<float>& logits) {
  for (const TokenUse& use : uses) {
    if (use.token >= logits.size()) continue;
    float& logit = logits[use.token];
    if (use.in_prompt + uint64_t{use.in_output} > 0) {
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    }
    if (use.in_output > 0) {
      logit -= params.frequency_penalty * static_cast<float>(use.in_output);
      logit -= params.presence_penalty;
    }
  }
}

bool IsAllowed(std::span<const uint32_t> allowed, size_t token) {
  return (allowed[token / 32] >> (token % 32) & 1) != 0;
}

/// Forbids what is not allowed, a word of bits at a time: most words are all or nothing.
void ApplyAllowed(std::span<const uint32_t> allowed, std::vector<float>& logits) {
  for (size_t begin = 0; begin < logits.size(); begin += 32) {
    const uint32_t bits = allowed[begin / 32];
    if (bits == UINT32_MAX) continue;
    const size_t end = std::min(logits.size(), begin + 32);
    for (size_t i = begin; i < end; ++i) logits[i] = (bits >> (i - begin) & 1) != 0 ? logits[i] : -kInfinity;
  }
}

/// For logits that are all -infinity or no numbers.
uint32_t FirstAllowed(std::span<const uint32_t> allowed) {
  for (size_t word = 0; word < allowed.size(); ++word) {
    if (allowed[word] != 0)
      return static_cast<uint32_t>(word * 32 + static_cast<size_t>(std::countr_zero(allowed[word])));
  }
  return 0;
}

constexpr size_t kChunk = 256;  ///< Logits that are weighed at once, and whose mass is remembered.

/// Weights of at most kChunk logits relative to the highest one, which gets 1; NaN gets 0.
void WeighChunk(const float* logits, size_t n, float max, float temperature, float* weights) {
  ExpRow(logits, static_cast<uint32_t>(n), max, temperature, weights);
  // Infinity less infinity: shares the top.
  for (size_t i = 0; i < n; ++i) weights[i] = !std::isnan(weights[i]) ? weights[i] : logits[i] == max ? 1.0f : 0.0f;
}

/// Sum of at most kChunk weights.
double MassOf(const float* weights, size_t n) {
  constexpr size_t kLanes = 8;
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) lanes[j] += static_cast<double>(weights[i + j]);
  }
  for (; i < n; ++i) lanes[0] += static_cast<double>(weights[i]);
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/// Sums up scratch.weights run by run. @return their sum, which is that of scratch.masses in order.
double GatherMasses(SamplingScratch& scratch) {
  const std::vector<float>& weights = scratch.weights;
  scratch.masses.clear();
  double total = 0;
  for (size_t begin = 0; begin < weights.size(); begin += kChunk) {
    scratch.masses.push_back(MassOf(weights.data() + begin, std::min(kChunk, weights.size() - begin)));
    total += scratch.masses.back();
  }
  return total;
}

/// Weights of all logits. @return their sum.
double WeighAll(std::span<const float> logits, float max, float temperature, SamplingScratch& scratch) {
  scratch.weights.resize(logits.size());
  for (size_t begin = 0; begin < logits.size(); begin += kChunk) {
    const size_t n = std::min(kChunk, logits.size() - begin);
    WeighChunk(logits.data() + begin, n, max, temperature, scratch.weights.data() + begin);
  }
  return GatherMasses(scratch);
}

/// Weights whose mass is gathered together: those of equal exponent and upper three bits of the mantissa. Weights lie
/// in [0, 1].
uint32_t BucketOf(float weight) {
  return std::bit_cast<uint32_t>(weight) >> 20;
}
constexpr uint32_t kBuckets = (std::bit_cast<uint32_t>(1.0f) >> 20) + 1;

/// The last of `ranked`, likeliest first, that top-p keeps: the first at which the mass, `mass` at the start, reaches
/// `target`. Ranks only the part around it. REQUIRES: not empty.
Candidate EdgeAmong(std::vector<Candidate>& ranked, double mass, double target) {
  auto begin = ranked.begin(), end = ranked.end();
  while (end - begin > 64) {
    auto split = begin + (end - begin) / 2;
    std::nth_element(begin, split, end, Likelier);
    double part = mass;
    for (auto c = begin; c != split; ++c) part += c->weight;
    if (part >= target) {
      end = split;
    } else {
      mass = part;
      begin = split;
    }
  }
  std::sort(begin, end, Likelier);
  for (auto c = begin; c != end; ++c) {
    mass += c->weight;
    if (mass >= target) return *c;
  }
  return *(end - 1);
}

/// Sets the weights to zero that top-p leaves out. The mass is gathered in buckets of similar weight, then only the
/// bucket in which the target lies is ranked.
void KeepNucleus(std::span<const float> logits, float top_p, double total, SamplingScratch& scratch) {
  std::vector<float>& weights = scratch.weights;
  const double target = top_p * total;
  // All that is lighter than this has less than half of the mass that is left out, so what is heavier holds the
  // nucleus.
  const double left_out = (1.0 - std::max(0.0f, top_p)) * total;
  const auto least = static_cast<float>(0.5 * left_out / static_cast<double>(weights.size()));
  double masses[2][kBuckets] = {};  // Two, as neighbours often meet in a bucket and would wait for each other.
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] >= least) masses[i % 2][BucketOf(weights[i])] += weights[i];
  }
  double mass = 0;  // Of everything likelier than what is looked at.
  uint32_t bucket = kBuckets - 1;
  for (; mass + masses[0][bucket] + masses[1][bucket] < target; --bucket) {
    if (bucket == 0) return;  // Rounding left the target above the whole mass.
    mass += masses[0][bucket] + masses[1][bucket];
  }
  scratch.ranked.clear();
  const float low = std::max(least, std::bit_cast<float>(bucket << 20));
  const float high = std::bit_cast<float>((bucket + 1) << 20);
  for (size_t begin = 0; begin < weights.size(); begin += kChunk) {
    const size_t end = std::min(weights.size(), begin + kChunk);
    uint32_t any = 0;  // A loop of vectors first: most chunks have none.
    for (size_t i = begin; i < end; ++i) any += uint32_t{weights[i] >= low} & uint32_t{weights[i] < high};
    for (size_t i = begin; any > 0; ++i) {
      if (!(weights[i] >= low) || !(weights[i] < high)) continue;
      scratch.ranked.push_back({logits[i], weights[i], static_cast<uint32_t>(i)});
      --any;
    }
  }
  if (scratch.ranked.empty()) return;
  const Candidate edge = EdgeAmong(scratch.ranked, mass, target);
  for (size_t i = 0; i < weights.size(); ++i) {
    const uint32_t keeps =
        uint32_t{logits[i] > edge.logit} | (uint32_t{logits[i] == edge.logit} & uint32_t{i <= edge.token});
    weights[i] = keeps != 0 ? weights[i] : 0.0f;
  }
}

/// Sets the weights to zero that are below `least`; the likeliest tokens stay.
void KeepHeavy(float least, std::vector<float>& weights) {
  const float bound = std::min(least, 1.0f);
  for (float& weight : weights) weight = weight >= bound ? weight : 0.0f;
}

/// The first number, in order, at which the mass exceeds `target`; the last one with a weight if it never does.
/// REQUIRES: one has a weight.
uint32_t Draw(const SamplingScratch& scratch, double target) {
  const std::vector<float>& weights = scratch.weights;
  size_t chunk = 0;
  double mass = 0;
  while (chunk + 1 < scratch.masses.size() && mass + scratch.masses[chunk] <= target) mass += scratch.masses[chunk++];
  size_t last = weights.size();
  for (size_t i = chunk * kChunk; i < weights.size(); ++i) {
    if (weights[i] == 0) continue;
    last = i;
    mass += weights[i];
    if (mass > target) break;
  }
  // Rounding may have led past everything that has a weight.
  while (last == weights.size() || weights[last] == 0) --last;
  return static_cast<uint32_t>(last);
}

}  // namespace

void SamplingScratch::Reserve(size_t vocab_size) {
  logits.reserve(vocab_size);
  weights.reserve(vocab_size);
  masses.reserve(vocab_size / kChunk + 1);
  chosen.reserve(vocab_size);
  candidates.reserve(vocab_size);
  ranked.reserve(vocab_size);
}

uint32_t ArgMax(std::span<const float> logits) {
  float max = MaxOf(logits);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == max) return static_cast<uint32_t>(i);
  }
  return 0;
}

namespace {

/// Among all tokens whose logits are left.
uint32_t Choose(std::span<const float> logits, const SamplingParams& params, uint64_t position,
                SamplingScratch& scratch) {
  if (!(params.temperature > 0)) return ArgMax(logits);
  std::span<const float> pool = logits;
  const bool cut = params.top_k > 0 && params.top_k < logits.size();
  if (cut) {
    SelectTop(logits, params.top_k, scratch.candidates);
    std::sort(scratch.candidates.begin(), scratch.candidates.end(), ById);
    scratch.chosen.clear();
    for (const Candidate& c : scratch.candidates) scratch.chosen.push_back(c.logit);
    pool = scratch.chosen;
  }
  const float max = MaxOf(pool);
  if (max == -kInfinity) return ArgMax(logits);
  double total = WeighAll(pool, max, params.temperature, scratch);
  if (params.top_p < 1) KeepNucleus(pool, params.top_p, total, scratch);
  if (params.min_p > 0) KeepHeavy(params.min_p, scratch.weights);
  if (params.top_p < 1 || params.min_p > 0) total = GatherMasses(scratch);
  const uint32_t drawn = Draw(scratch, UniformAt(params.seed, position) * total);
  return cut ? scratch.candidates[drawn].token : drawn;
}

}  // namespace

uint32_t SampleToken(std::span<const float> logits, const SamplingParams& params, std::span<const TokenUse> uses,
                     std::span<const LogitBias> biases, uint64_t position, SamplingScratch& scratch,
                     std::span<const uint32_t> allowed) {
  KVIST_CHECK(!logits.empty() && (allowed.empty() || allowed.size() == (logits.size() + 31) / 32));
  if (uses.empty() && biases.empty() && allowed.empty()) return Choose(logits, params, position, scratch);
  scratch.logits.assign(logits.begin(), logits.end());
  ApplyBiases(biases, scratch.logits);
  ApplyPenalties(uses, params, scratch.logits);
  if (allowed.empty()) return Choose(scratch.logits, params, position, scratch);
  ApplyAllowed(allowed, scratch.logits);
  const uint32_t token = Choose(scratch.logits, params, position, scratch);
  return IsAllowed(allowed, token) ? token : FirstAllowed(allowed);
}

double LogSumExp(std::span<const float> logits) {
  const float max = MaxOf(logits);
  if (std::isinf(max)) return max;
  float chunk[kChunk];
  double sum = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kChunk) {
    const size_t n = std::min(kChunk, logits.size() - begin);
    WeighChunk(logits.data() + begin, n, max, 1.0f, chunk);
    sum += MassOf(chunk, n);
  }
  return max + std::log(sum);
}

float LogprobOf(std::span<const float> logits, double log_sum_exp, uint32_t token) {
  KVIST_CHECK(token < logits.size());
  double logprob = logits[token] - log_sum_exp;
  return std::isnan(logprob) ? -kInfinity : static_cast<float>(logprob);
}

void TopLogprobs(std::span<const float> logits, double log_sum_exp, uint32_t n, SamplingScratch& scratch,
                 std::vector<TokenLogprob>& out) {
  SelectTop(logits, std::min<size_t>(n, logits.size()), scratch.ranked);
  std::sort(scratch.ranked.begin(), scratch.ranked.end(), Likelier);
  out.clear();
  for (const Candidate& c : scratch.ranked) out.push_back({c.token, LogprobOf(logits, log_sum_exp, c.token)});
}

}  // namespace kvist::kernels
