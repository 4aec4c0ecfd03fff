// What the engine says of a request when it is over.

#include <gtest/gtest.h>

#include "base/prng.h"
#include "engine/engine_testutil.h"

namespace kvist::engine {
namespace {

uint32_t Reused(const RequestTrace& trace) {
  uint32_t tokens = 0;
  for (const kv::ReusedPart& part : trace.reused) tokens += part.tokens;
  return tokens;
}

void ExpectInOrder(const RequestTrace& trace) {
  EXPECT_LE(trace.arrived_at, trace.began_at);
  EXPECT_LE(trace.began_at, trace.first_token_at);
  EXPECT_LE(trace.first_token_at, trace.finished_at);
  EXPECT_GT(trace.step_ns, 0);
  EXPECT_LE(trace.step_ns, trace.finished_at - trace.began_at);
}

TEST(EngineTrace, TellsWhatWasComputedAndWhatWasFoundAndFromWhom) {
  Bench bench({.chunk = 100});
  const RequestId first = bench.Submit(Greedy(250, 1));
  bench.Finish();
  const RequestTrace cold = *bench.Of(first).trace;
  EXPECT_EQ(cold.id, first);
  EXPECT_TRUE(cold.reused.empty());
  EXPECT_EQ(cold.prompt_tokens, 250u);
  EXPECT_EQ(cold.computed_tokens, 250u + 5);
  EXPECT_EQ(cold.output_tokens, 6u);
  EXPECT_EQ(cold.steps, 3u + 5);
  EXPECT_EQ(cold.batch_requests, cold.steps);
  EXPECT_EQ(cold.batch_tokens, cold.computed_tokens);
  EXPECT_EQ(cold.own_blocks, 16u);
  EXPECT_EQ(cold.leader, RequestId{});
  ExpectInOrder(cold);

  const RequestTrace warm = *bench.Solo(Greedy(250, 1)).trace;
  EXPECT_EQ(Reused(warm), 249u);
  EXPECT_EQ(warm.computed_tokens, 1u + 5);
  for (const kv::ReusedPart& part : warm.reused) {
    EXPECT_EQ(part.computed_by, first);
    EXPECT_EQ(part.copied, part.tokens < kv::kBlockTokens);
    EXPECT_LE(cold.finished_at, part.computed_at);
    EXPECT_LE(part.computed_at, warm.began_at);
  }
  ExpectInOrder(warm);
}

TEST(EngineTrace, TellsForWhomItWaited) {
  Bench bench({.chunk = 64});
  const RequestId leader = bench.Submit(Greedy(300, 2)), follower = bench.Submit(Greedy(300, 2));
  bench.Finish();
  const RequestTrace& trace = *bench.Of(follower).trace;
  EXPECT_EQ(trace.leader, leader);
  EXPECT_GT(trace.leader_tokens, 250u);
  EXPECT_GT(trace.leader_wait_ns, 0);
  EXPECT_LE(trace.leader_wait_ns, trace.began_at - trace.arrived_at);
  EXPECT_EQ(Reused(trace), 299u);
  EXPECT_EQ(trace.batch_requests_max, 2u);
  EXPECT_EQ(bench.Of(leader).trace->leader_wait_ns, 0);
}

TEST(EngineTrace, TellsWhatPreemptionCost) {
  Bench bench({.frames = 26});
  std::vector<RequestId> ids;
  for (uint64_t i = 0; i < 4; ++i) ids.push_back(bench.Submit(Greedy(30, 10 + i, 150)));
  bench.Finish();
  uint32_t preemptions = 0, recomputed = 0;
  uint64_t computed = 0;
  for (const RequestId id : ids) {
    const RequestTrace& trace = *bench.Of(id).trace;
    preemptions += trace.preemptions;
    recomputed += trace.recomputed_tokens;
    computed += trace.computed_tokens;
    EXPECT_EQ(trace.preempted_ns > 0, trace.preemptions > 0);
    EXPECT_EQ(trace.computed_tokens, 30 + 149 + trace.recomputed_tokens);
    ExpectInOrder(trace);
  }
  EXPECT_EQ(preemptions, bench.engine().Stats().preemptions);
  EXPECT_GT(recomputed, 0u);
  EXPECT_EQ(computed, bench.engine().Stats().computed_tokens);
}

TEST(EngineTrace, ComesWithEveryEnd) {
  Bench bench({.frames = 64, .chunk = 32});
  const RequestId cancelled = bench.Submit(Greedy(400, 3, 200)), waiting = bench.Submit(Greedy(400, 4, 200));
  while (bench.engine().Stats().computed_tokens < 100) bench.Turn();
  bench.engine().Cancel(cancelled);
  bench.engine().Cancel(waiting);
  bench.Finish();
  EXPECT_GT(bench.Of(cancelled).trace->computed_tokens, 0u);
  EXPECT_EQ(bench.Of(cancelled).trace->first_token_at, kTimeNever);
  ASSERT_NE(bench.Of(waiting).trace, nullptr);
  const Answer refused = bench.Solo(GenerationRequest{});
  ASSERT_NE(refused.trace, nullptr);
  EXPECT_EQ(refused.trace->began_at, kTimeNever);
}

}  // namespace
}  // namespace kvist::engine
