#include "kernels/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/prng.h"

namespace kvist::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> RandomLogits(size_t n, uint64_t seed, double spread) {
  Prng prng(seed);
  std::vector<float> logits(n);
  for (float& x : logits) x = static_cast<float>((prng.Uniform() + prng.Uniform() + prng.Uniform() - 1.5) * spread);
  return logits;
}

/// The definition written down plainly: sort everything, filter, normalise. Probability of each token.
std::vector<double> PlainDistribution(const std::vector<float>& logits, const SamplingParams& params) {
  std::vector<uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](uint32_t t) { return !(logits[t] > -kInf); });
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
  if (params.top_k > 0 && params.top_k < order.size()) order.resize(params.top_k);
  std::vector<double> weight(logits.size());
  double total = 0;
  for (uint32_t t : order) {
    weight[t] = std::exp((static_cast<double>(logits[t]) - logits[order[0]]) / params.temperature);
    total += weight[t];
  }
  if (params.top_p < 1) {
    double mass = 0;
    size_t kept = 0;
    while (kept < order.size() && (kept == 0 || mass < params.top_p * total)) mass += weight[order[kept++]];
    order.resize(kept);
  }
  std::vector<double> probability(logits.size());
  double left = 0;
  for (uint32_t t : order) left += weight[t] >= params.min_p ? weight[t] : 0;
  for (uint32_t t : order) probability[t] = weight[t] >= params.min_p ? weight[t] / left : 0;
  return probability;
}

struct Case {
  const char* name;
  SamplingParams params;
};

std::vector<Case> Cases() {
  return {
      {"plain", {}},
      {"hot", {.temperature = 2.5f}},
      {"cold", {.temperature = 0.3f}},
      {"top-k", {.top_k = 5}},
      {"top-k of one", {.top_k = 1}},
      {"top-p", {.top_p = 0.8f}},
      {"top-p of nothing", {.top_p = 0.0f}},
      {"min-p", {.min_p = 0.2f}},
      {"min-p of everything", {.min_p = 1.0f}},
      {"all filters", {.temperature = 1.5f, .top_k = 12, .top_p = 0.9f, .min_p = 0.05f}},
  };
}

// Frequencies over many positions follow the definition (chi-square, 5 sigma), and no excluded token is ever drawn.
TEST(SampleTokenTest, DrawsFollowTheDefinedDistribution) {
  constexpr int kDraws = 20000;
  std::vector<float> logits = RandomLogits(24, 3, 4);
  logits[5] = -kInf;
  logits[9] = kNan;
  SamplingScratch scratch;
  for (Case c : Cases()) {
    c.params.seed = 42;
    std::vector<double> probability = PlainDistribution(logits, c.params);
    std::vector<int> counts(logits.size());
    for (int i = 0; i < kDraws; ++i) ++counts[SampleToken(logits, c.params, {}, {}, i, scratch)];
    double chi_square = 0;
    int freedom = -1;
    for (size_t t = 0; t < logits.size(); ++t) {
      double expected = probability[t] * kDraws;
      if (probability[t] == 0) {
        ASSERT_EQ(counts[t], 0) << c.name << " token " << t;
        continue;
      }
      ++freedom;
      chi_square += (counts[t] - expected) * (counts[t] - expected) / std::max(expected, 1.0);
    }
    EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2.0 * freedom) + 1e-9) << c.name;
  }
}

// On a real vocabulary's size the filters keep exactly what sorting everything would keep.
TEST(SampleTokenTest, FiltersOfALargeVocabularyKeepWhatSortingWouldKeep) {
  SamplingScratch scratch;
  for (double spread : {1.0, 10.0, 40.0}) {
    std::vector<float> logits = RandomLogits(50'000, 7, spread);
    for (size_t i = 0; i < logits.size(); i += 3) logits[i] = std::round(logits[i]);  // Many equal logits.
    for (SamplingParams params :
         {SamplingParams{.top_k = 40}, SamplingParams{.top_k = 20'000, .top_p = 0.5f}, SamplingParams{.top_p = 0.3f},
          SamplingParams{.top_p = 0.99f}, SamplingParams{.temperature = 3, .top_p = 0.9f, .min_p = 0.1f},
          SamplingParams{.min_p = 0.01f}, SamplingParams{.top_p = 0.999f, .min_p = 1e-6f}}) {
      // f32 weights may move the edge of top-p by a token: allow what a slightly larger top_p keeps.
      SamplingParams wider = params;
      wider.top_p += 1e-5f;
      std::vector<double> probability = PlainDistribution(logits, wider);
      for (int i = 0; i < 40; ++i) {
        params.seed = i;
        uint32_t token = SampleToken(logits, params, {}, {}, 5, scratch);
        ASSERT_GT(probability[token], 0) << "token " << token << " spread " << spread << " top_p " << params.top_p;
      }
    }
  }
}

// Mass is remembered for runs of tokens: frequencies of the runs, and of the tokens inside one, follow the definition.
TEST(SampleTokenTest, DrawsOfALargeVocabularyFollowTheDefinedDistribution) {
  constexpr uint32_t kVocab = 3'001, kDraws = 40'000, kRun = 100;
  std::vector<float> logits = RandomLogits(kVocab, 5, 6);
  for (uint32_t i = 600; i < 1200; ++i) logits[i] = i % 2 == 0 ? -kInf : kNan;
  SamplingScratch scratch;
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.min_p = 0.001f}, SamplingParams{.top_p = 0.9f}}) {
    const std::vector<double> probability = PlainDistribution(logits, params);
    std::vector<double> expected(kVocab / kRun + 1), counts(expected.size());
    for (uint32_t t = 0; t < kVocab; ++t) expected[t / kRun] += probability[t] * kDraws;
    std::vector<uint32_t> singles(kVocab);
    for (uint32_t i = 0; i < kDraws; ++i) {
      const uint32_t token = SampleToken(logits, params, {}, {}, i, scratch);
      ++counts[token / kRun];
      ++singles[token];
    }
    double chi_square = 0;
    for (size_t run = 0; run < expected.size(); ++run) {
      if (expected[run] < 5) continue;
      chi_square += (counts[run] - expected[run]) * (counts[run] - expected[run]) / expected[run];
    }
    const double freedom = static_cast<double>(expected.size());
    EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom)) << "top-p " << params.top_p;
    for (uint32_t t = 0; t < kVocab; ++t) {
      const double mean = probability[t] * kDraws;
      ASSERT_LE(std::abs(singles[t] - mean), 6 * std::sqrt(mean) + 6) << "token " << t << " top-p " << params.top_p;
    }
  }
}

TEST(SampleTokenTest, ADrawDependsOnSeedAndPositionOnly) {
  std::vector<float> logits = RandomLogits(1000, 11, 5);
  SamplingScratch used, fresh;
  SampleToken(RandomLogits(77, 12, 5), {.top_k = 3}, {}, {}, 9, used);
  SamplingParams params{.top_p = 0.95f, .seed = 99};
  std::vector<uint32_t> first, second, other_seed;
  for (uint64_t i = 0; i < 50; ++i) first.push_back(SampleToken(logits, params, {}, {}, i, used));
  for (uint64_t i = 50; i-- > 0;) second.insert(second.begin(), SampleToken(logits, params, {}, {}, i, fresh));
  params.seed = 100;
  for (uint64_t i = 0; i < 50; ++i) other_seed.push_back(SampleToken(logits, params, {}, {}, i, used));
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other_seed);
}

TEST(SampleTokenTest, GreedyTakesTheLowestOfTheHighest) {
  SamplingScratch scratch;
  SamplingParams greedy{.temperature = 0};
  auto pick = [&](std::vector<float> logits) { return SampleToken(logits, greedy, {}, {}, 0, scratch); };
  EXPECT_EQ(pick({1, 3, 3, 2}), 1u);
  EXPECT_EQ(pick({kNan, -5, -2, kNan}), 2u);
  EXPECT_EQ(pick({kNan, -kInf, kNan}), 1u);
  EXPECT_EQ(pick({kNan, kNan}), 0u);
  EXPECT_EQ(pick({0, kInf, kInf}), 1u);
  std::vector<float> many(100, -1);
  many[97] = 4;
  many[98] = 4;
  EXPECT_EQ(pick(many), 97u);
}

TEST(SampleTokenTest, DegenerateLogitsAreSurvived) {
  SamplingScratch scratch;
  for (const Case& c : Cases()) {
    EXPECT_EQ(SampleToken(std::vector<float>{kNan, kNan}, c.params, {}, {}, 0, scratch), 0u) << c.name;
    EXPECT_EQ(SampleToken(std::vector<float>{-kInf, -kInf, kNan}, c.params, {}, {}, 0, scratch), 0u) << c.name;
    EXPECT_EQ(SampleToken(std::vector<float>{kNan, -kInf, -3e38f}, c.params, {}, {}, 0, scratch), 2u) << c.name;
    uint32_t top = SampleToken(std::vector<float>{1, kInf, 2, kInf, kNan}, c.params, {}, {}, 3, scratch);
    EXPECT_TRUE(top == 1 || top == 3) << c.name;
  }
  SamplingParams tiny{.temperature = 1e-45f};
  EXPECT_EQ(SampleToken(std::vector<float>{1, 3, 2}, tiny, {}, {}, 3, scratch), 1u);
}

TEST(SampleTokenTest, WhatIsNotAllowedIsNeverChosen) {
  constexpr size_t kVocab = 1000;
  SamplingScratch scratch;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<float> logits = RandomLogits(kVocab, seed, 8);
    std::vector<uint32_t> allowed((kVocab + 31) / 32, 0);
    std::vector<float> masked(kVocab, -kInf);
    Prng prng(seed);
    for (int i = 0; i < 5; ++i) {
      const auto token = static_cast<uint32_t>(prng.Below(kVocab));
      allowed[token / 32] |= 1u << (token % 32);
      masked[token] = logits[token];
    }
    for (const Case& c : Cases()) {
      SamplingParams params = c.params;
      params.seed = seed;
      for (uint64_t position = 0; position < 4; ++position) {
        // The same as if the others had no chance; penalties and biases come before.
        EXPECT_EQ(SampleToken(logits, params, {}, {}, position, scratch, allowed),
                  SampleToken(masked, params, {}, {}, position, scratch))
            << c.name;
      }
    }
    // Even where nothing that is allowed has a chance.
    std::fill(logits.begin(), logits.end(), seed % 2 == 0 ? -kInf : kNan);
    const uint32_t token = SampleToken(logits, {}, {}, {}, 0, scratch, allowed);
    EXPECT_TRUE((allowed[token / 32] >> (token % 32) & 1) != 0);
  }
}

TEST(SampleTokenTest, BiasAndPenaltiesChangeTheLogitsAsDefined) {
  SamplingScratch scratch;
  std::vector<float> logits = {2.0f, 1.9f, -1.0f, 0.0f};
  auto pick = [&](SamplingParams params, std::vector<TokenUse> uses, std::vector<LogitBias> biases) {
    params.temperature = 0;
    return SampleToken(logits, params, uses, biases, 0, scratch);
  };
  EXPECT_EQ(pick({}, {}, {{0, -kInf}}), 1u);
  EXPECT_EQ(pick({}, {}, {{3, 100.0f}, {4000, 1e9f}}), 3u);
  // Repetition counts prompt and output; presence and frequency the output only.
  EXPECT_EQ(pick({.repetition_penalty = 1.2f}, {{0, 1, 0}}, {}), 1u);
  EXPECT_EQ(pick({.presence_penalty = 0.2f}, {{0, 5, 0}}, {}), 0u);
  EXPECT_EQ(pick({.presence_penalty = 0.2f}, {{0, 0, 1}}, {}), 1u);
  EXPECT_EQ(pick({.frequency_penalty = 0.06f}, {{0, 9, 1}}, {}), 0u);
  EXPECT_EQ(pick({.frequency_penalty = 0.06f}, {{0, 0, 2}}, {}), 1u);
  EXPECT_EQ(pick({.frequency_penalty = 0.06f}, {{0, 0, 2}, {9999, 1, 1}}, {}), 1u);
  // A negative logit is multiplied: it moves away from the others too.
  logits = {-1.0f, -1.1f};
  EXPECT_EQ(pick({.repetition_penalty = 1.2f}, {{0, 1, 0}}, {}), 1u);
  // Penalties act after the bias.
  logits = {-1.0f, 0.5f};
  EXPECT_EQ(pick({.repetition_penalty = 4.0f}, {{0, 1, 0}}, {{0, 2.0f}}), 1u);
}

TEST(LogprobsTest, AreTheLogSoftmaxOfTheRawLogits) {
  std::vector<float> logits = RandomLogits(5003, 21, 15);
  logits[17] = kNan;
  logits[18] = -kInf;
  double sum = 0;
  for (float x : logits) sum += std::isnan(x) ? 0 : std::exp(static_cast<double>(x));
  double log_sum_exp = LogSumExp(logits);
  EXPECT_NEAR(log_sum_exp, std::log(sum), 1e-6);
  EXPECT_EQ(LogprobOf(logits, log_sum_exp, 17), -kInf);
  EXPECT_EQ(LogprobOf(logits, log_sum_exp, 18), -kInf);
  EXPECT_NEAR(LogprobOf(logits, log_sum_exp, 100), logits[100] - std::log(sum), 1e-5);

  SamplingScratch scratch;
  std::vector<TokenLogprob> top;
  TopLogprobs(logits, log_sum_exp, 20, scratch, top);
  ASSERT_EQ(top.size(), 20u);
  EXPECT_EQ(top[0].token, ArgMax(logits));
  std::vector<float> sorted;
  std::copy_if(logits.begin(), logits.end(), std::back_inserter(sorted), [](float x) { return !std::isnan(x); });
  std::sort(sorted.rbegin(), sorted.rend());
  for (size_t i = 0; i < top.size(); ++i) {
    EXPECT_EQ(logits[top[i].token], sorted[i]);
    EXPECT_EQ(top[i].logprob, LogprobOf(logits, log_sum_exp, top[i].token));
  }
}

TEST(LogprobsTest, EqualLogitsStandInOrderOfId) {
  std::vector<float> logits(300, 1.0f);
  logits[200] = 2;
  SamplingScratch scratch;
  std::vector<TokenLogprob> top;
  TopLogprobs(logits, LogSumExp(logits), 4, scratch, top);
  ASSERT_EQ(top.size(), 4u);
  EXPECT_EQ(top[0].token, 200u);
  for (uint32_t i = 1; i < 4; ++i) EXPECT_EQ(top[i].token, i - 1);
  TopLogprobs(std::vector<float>{1, 2}, 0, 9, scratch, top);
  EXPECT_EQ(top.size(), 2u);
  TopLogprobs(std::vector<float>{1, 2}, 0, 0, scratch, top);
  EXPECT_TRUE(top.empty());
}

}  // namespace
}  // namespace kvist::kernels
