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

void AllNumbers(std::span<const float> logits, std::vector<Candidate>& out) {
  out.resize(logits.size());  // Not cleared before: a warm vector has nothing to initialise.
  size_t count = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    out[count] = {logits[i], 0, static_cast<uint32_t>(i)};
    count += logits[i] > -kInfinity ? 1 : 0;
  }
  out.resize(count);
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

/// Weights relative to the highest logit, which gets 1. Returns their sum.
double Weigh(float temperature, std::vector<Candidate>& candidates) {
  float max = -kInfinity;
  for (const Candidate& c : candidates) max = c.logit > max ? c.logit : max;
  constexpr uint32_t kChunk = 256;
  float chunk[kChunk];
  double total = 0;
  for (size_t begin = 0; begin < candidates.size(); begin += kChunk) {
    auto n = static_cast<uint32_t>(std::min<size_t>(kChunk, candidates.size() - begin));
    for (uint32_t i = 0; i < n; ++i) chunk[i] = candidates[begin + i].logit;
    ExpRow(chunk, n, max, temperature, chunk);
    for (uint32_t i = 0; i < n; ++i) {
      Candidate& c = candidates[begin + i];
      c.weight = std::isnan(chunk[i]) ? 1.0f : chunk[i];  // infinity - infinity: shares the top.
      total += c.weight;
    }
  }
  return total;
}

/// The last candidate, likeliest first, that top-p keeps: the first at which the mass reaches `target`. The mass is
/// gathered in buckets of similar weight, then only the bucket in which the target lies is ranked, and of that only the
/// part around it.
Candidate LastOfNucleus(const std::vector<Candidate>& candidates, double target, std::vector<Candidate>& ranked) {
  constexpr uint32_t kShift = 20;  // Exponent and three bits of mantissa; weights lie in [0, 1].
  constexpr uint32_t kBuckets = (std::bit_cast<uint32_t>(1.0f) >> kShift) + 1;
  auto bucket_of = [](const Candidate& c) { return std::bit_cast<uint32_t>(c.weight) >> kShift; };
  double buckets[kBuckets] = {};
  for (const Candidate& c : candidates) buckets[bucket_of(c)] += c.weight;
  double mass = 0;  // Of everything likelier than what is looked at.
  uint32_t bucket = kBuckets - 1;
  while (bucket > 0 && mass + buckets[bucket] < target) mass += buckets[bucket--];
  ranked.clear();
  for (const Candidate& c : candidates) {
    if (bucket_of(c) == bucket) ranked.push_back(c);
  }
  if (ranked.empty()) return {-kInfinity, 0, UINT32_MAX};  // Rounding left the target above the whole mass: keep all.
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

/// Walks the candidates that `keep` admits in order of id until their mass exceeds `target`; the last of them if it
/// never does. REQUIRES: one of them has a positive weight.
template <class Keep>
uint32_t Draw(const std::vector<Candidate>& candidates, double target, Keep keep) {
  double mass = 0;
  const Candidate* last = nullptr;
  for (const Candidate& c : candidates) {
    if (!keep(c) || c.weight == 0) continue;
    mass += c.weight;
    last = &c;
    if (mass > target) break;
  }
  KVIST_CHECK(last != nullptr);
  return last->token;
}

template <class Keep>
uint32_t DrawFiltered(const std::vector<Candidate>& candidates, double uniform, Keep keep) {
  double total = 0;
  for (const Candidate& c : candidates) {
    if (keep(c)) total += c.weight;
  }
  return Draw(candidates, uniform * total, keep);
}

}  // namespace

uint32_t ArgMax(std::span<const float> logits) {
  float max = MaxOf(logits);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == max) return static_cast<uint32_t>(i);
  }
  return 0;
}

uint32_t SampleToken(std::span<const float> logits, const SamplingParams& params, std::span<const TokenUse> uses,
                     std::span<const LogitBias> biases, uint64_t position, SamplingScratch& scratch) {
  KVIST_CHECK(!logits.empty());
  if (!uses.empty() || !biases.empty()) {
    scratch.logits.assign(logits.begin(), logits.end());
    ApplyBiases(biases, scratch.logits);
    ApplyPenalties(uses, params, scratch.logits);
    logits = scratch.logits;
  }
  if (!(params.temperature > 0)) return ArgMax(logits);
  std::vector<Candidate>& candidates = scratch.candidates;
  if (params.top_k > 0 && params.top_k < logits.size()) {
    SelectTop(logits, params.top_k, candidates);
    std::sort(candidates.begin(), candidates.end(), ById);
  } else {
    AllNumbers(logits, candidates);
  }
  if (candidates.empty()) return ArgMax(logits);
  double total = Weigh(params.temperature, candidates);
  double uniform = UniformAt(params.seed, position);
  if (!(params.top_p < 1) && !(params.min_p > 0)) {
    return Draw(candidates, uniform * total, [](const Candidate&) { return true; });
  }
  float min_weight = params.min_p;
  auto heavy = [min_weight](const Candidate& c) { return !(c.weight < min_weight) || c.weight == 1; };
  if (!(params.top_p < 1)) return DrawFiltered(candidates, uniform, heavy);
  Candidate last = LastOfNucleus(candidates, params.top_p * total, scratch.ranked);
  return DrawFiltered(candidates, uniform, [&](const Candidate& c) { return heavy(c) && !Likelier(last, c); });
}

double LogSumExp(std::span<const float> logits) {
  constexpr size_t kChunk = 256;
  float max = MaxOf(logits);
  if (std::isinf(max)) return max;
  float chunk[kChunk];
  double sum = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kChunk) {
    size_t n = std::min(kChunk, logits.size() - begin);
    ExpRow(logits.data() + begin, static_cast<uint32_t>(n), max, 1.0f, chunk);
    for (size_t i = 0; i < n; ++i) sum += std::isnan(chunk[i]) ? 0.0 : static_cast<double>(chunk[i]);
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
