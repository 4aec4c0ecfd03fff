// The attention that a request's answer pays to parts of its prompt: measured once, whatever else happens to it.

#include <gtest/gtest.h>

#include <numeric>

#include "base/prng.h"
#include "engine/engine_testutil.h"

namespace kvist::engine {
namespace {

GenerationRequest Measured(uint32_t prompt_tokens, uint64_t seed, uint32_t max_tokens = 24) {
  Prng prng(seed);
  GenerationRequest request;
  for (uint32_t i = 0; i < prompt_tokens; ++i) {
    request.prompt.push_back(TokenId{static_cast<uint32_t>(10 + prng.Below(800))});
  }
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  const uint32_t n = prompt_tokens;
  request.mass_ranges = {{0, n / 8}, {n / 6, n / 3}, {n / 3, n / 3 + 1}, {n / 2, n}};
  return request;
}

double Sum(const std::vector<float>& shares) {
  return std::accumulate(shares.begin(), shares.end(), 0.0);
}

TEST(EngineMass, IsTheSameColdWarmChunkedBatchedAndPreempted) {
  const GenerationRequest request = Measured(60, 1, 150);
  const Answer cold = Bench({.reuse = false}).Solo(request);
  ASSERT_EQ(cold.range_mass.size(), 4u);
  EXPECT_GT(Sum(cold.range_mass), 0.1);
  EXPECT_LT(Sum(cold.range_mass), 1.0);
  Bench chunked({.chunk = 17, .threads = 1});
  EXPECT_EQ(chunked.Solo(request).range_mass, cold.range_mass);
  EXPECT_EQ(chunked.Solo(request).range_mass, cold.range_mass) << "warm";
  Bench pressed({.frames = 26});  // Three such requests do not fit at once.
  std::vector<RequestId> ids;
  for (uint64_t seed = 1; seed < 6; ++seed) ids.push_back(pressed.Submit(Measured(60, seed, 150)));
  pressed.Finish();
  EXPECT_GT(pressed.engine().Stats().preemptions, 0u);
  for (uint64_t seed = 1; seed < 6; ++seed) {
    const Answer alone = Bench({}).Solo(Measured(60, seed, 1));
    EXPECT_EQ(pressed.Of(ids[seed - 1]).range_mass, alone.range_mass) << seed;
  }
}

TEST(EngineMass, AskingChangesNoAnswer) {
  GenerationRequest request = Measured(240, 2);
  const Answer measured = Bench({}).Solo(request);
  request.mass_ranges.clear();
  const Answer plain = Bench({}).Solo(request);
  EXPECT_EQ(measured.tokens, plain.tokens);
  EXPECT_TRUE(plain.range_mass.empty());
}

TEST(EngineMass, WhatHasLeftTheViewGetsNone) {
  GenerationRequest request = Measured(240, 3);
  request.ops = {{.at = 150, .begin = 40, .end = 90}, {.at = 200, .begin = 90, .end = 120}};
  const std::vector<float> mass = Bench({}).Solo(request).range_mass;
  ASSERT_EQ(mass.size(), 4u);
  EXPECT_EQ(mass[1], 0.0f);
  EXPECT_EQ(mass[2], 0.0f);
  EXPECT_GT(mass[0], 0.0f);
  EXPECT_GT(mass[3], 0.0f);  // Tokens 120 to 239.
}

TEST(EngineMass, AnAnswerOfOneTokenTellsItToo) {
  const Answer whole = Bench({}).Solo(Measured(240, 4));
  const Answer cut = Bench({}).Solo(Measured(240, 4, /*max_tokens=*/1));
  EXPECT_EQ(cut.finish, FinishReason::kLength);
  EXPECT_EQ(cut.range_mass, whole.range_mass);
  EXPECT_TRUE(Bench({}).Solo(Measured(240, 4, /*max_tokens=*/0)).range_mass.empty());
}

TEST(EngineMass, RangesOutsideThePromptAreRefused) {
  for (const std::vector<kv::TokenRange>& ranges :
       {std::vector<kv::TokenRange>{{0, 241}}, {{5, 4}}, {{10, 20}, {15, 30}}}) {
    GenerationRequest request = Measured(240, 5);
    request.mass_ranges = ranges;
    EXPECT_EQ(Bench({}).Solo(request).status.code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace kvist::engine
