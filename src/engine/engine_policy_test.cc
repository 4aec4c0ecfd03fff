// Scheduling decides when, never what: every policy gives every request the tokens that it has alone.

#include <gtest/gtest.h>

#include "base/prng.h"
#include "base/status.h"
#include "engine/engine_testutil.h"

namespace kvist::engine {
namespace {

class EveryPolicy : public testing::TestWithParam<sched::PolicyEntry> {};

INSTANTIATE_TEST_SUITE_P(, EveryPolicy, testing::ValuesIn(sched::Policies().begin(), sched::Policies().end()),
                         [](const auto& test) {
                           std::string name(test.param.name);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

/// Requests of two tenants and two priorities, with and without deadlines, come while others run, and memory is too
/// small for all of them.
TEST_P(EveryPolicy, GivesEverybodyTheTokensThatItHasAlone) {
  constexpr size_t kRequests = 10;
  Bench alone({.frames = 512, .reuse = false}), bench({.frames = 18, .policy = GetParam().name, .chunk = 24});
  Prng prng(3);
  std::vector<GenerationRequest> requests;
  for (size_t i = 0; i < kRequests; ++i) {
    std::string text(i % 3 == 0 ? kOther : kStory);
    for (uint64_t n = prng.Below(3); n > 0; --n) text += kOther;
    GenerationRequest request = bench.Greedy(text, 20 + static_cast<uint32_t>(prng.Below(40)));
    request.tenant = TenantId{static_cast<uint32_t>(i % 2)};
    request.priority = i % 4 == 1 ? 200 : 128;
    request.next_token_ns = i % 2 == 0 ? 1'000'000 : 0;
    request.first_token_ns = i % 3 == 0 ? 50'000'000 : 0;
    request.output_tokens_predicted = static_cast<uint32_t>(prng.Below(100));
    requests.push_back(request);
  }
  std::vector<RequestId> ids;
  for (const GenerationRequest& request : requests) {
    ids.push_back(bench.Submit(request));
    for (int turn = 0; turn < 12; ++turn) bench.Turn();
  }
  bench.Finish();
  for (size_t i = 0; i < kRequests; ++i) EXPECT_EQ(bench.Of(ids[i]).tokens, alone.Solo(requests[i]).tokens) << i;
  if (GetParam().name.find("deadline") == std::string_view::npos) {  // Those cut chunks by what steps took here.
    EXPECT_GT(bench.engine().Stats().preemptions, 0u) << "memory is too large for this test";
  }
  bench.ExpectNoLeak();
}

TEST(Engine, WhoseTextIsCachedDoesNotWaitForALongPrompt) {
  Bench bench({.policy = sched::kDefaultPolicy, .chunk = 64});
  const GenerationRequest cached = Greedy(1000, 1), other = Greedy(3000, 2);
  bench.Solo(cached);
  const RequestId slow = bench.Submit(other);
  for (int turn = 0; turn < 3; ++turn) bench.Turn();
  const RequestId quick = bench.Submit(cached);
  while (bench.Of(quick).finish == FinishReason::kNone) bench.Turn();
  EXPECT_EQ(bench.Of(quick).usage.cached_tokens, 999u);
  EXPECT_TRUE(bench.Of(slow).tokens.empty());
  bench.Finish();
}

TEST(Engine, WhatRequestsShareCountsOnce) {
  Bench bench({.frames = 64});
  const GenerationRequest shared = Greedy(600, 3);  // 38 blocks.
  bench.Solo(shared);
  std::vector<RequestId> ids;
  for (uint64_t i = 0; i < 6; ++i) {
    GenerationRequest request = shared;
    request.prompt.resize(590);
    for (const TokenId token : Greedy(20, 10 + i).prompt) request.prompt.push_back(token);
    ids.push_back(bench.Submit(request));
  }
  uint64_t together = 0;
  while (bench.Of(ids.back()).finish == FinishReason::kNone) {
    bench.Turn();
    together = std::max(together, bench.engine().Stats().running);
  }
  EXPECT_EQ(together, 6u);
  bench.Finish();
  EXPECT_EQ(bench.engine().Stats().preemptions, 0u);
}

TEST(Engine, PredictsTheWaitFromItsQueue) {
  Bench bench({});
  const int64_t idle = bench.engine().PredictedWaitNs(100);
  EXPECT_GT(idle, 0);
  std::string text(kStory);
  for (int i = 0; i < 6; ++i) text += kOther;
  std::vector<RequestId> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(bench.Submit(bench.Greedy(Cat(i, text), 4)));
  const int64_t queued = bench.engine().PredictedWaitNs(100);  // None of them was looked at yet.
  EXPECT_GT(queued, 5 * idle);
  for (int turn = 0; turn < 3; ++turn) bench.Turn();
  EXPECT_GT(bench.engine().PredictedWaitNs(100), idle);
  bench.Finish();
  EXPECT_LT(bench.engine().PredictedWaitNs(100), queued / 5);
}

TEST(Engine, LearnsWhatStepsTake) {
  Bench bench({.chunk = 64});
  std::string text;
  for (int i = 0; i < 10; ++i) text += kOther;
  const sched::StepCost before = bench.engine().Stats().step_cost;
  for (int i = 0; i < 4; ++i) bench.Submit(bench.Greedy(Cat(i, text), 30));
  bench.Finish();
  EXPECT_NE(bench.engine().Stats().step_cost.ns, before.ns);
}

}  // namespace
}  // namespace kvist::engine
