#include "engine/step_log.h"

#include <gtest/gtest.h>

#include "engine/engine_testutil.h"

namespace kvist::engine {
namespace {

StepRecord Step(uint64_t id) {
  const auto at = static_cast<int64_t>(id) * 10;
  return {.id = StepId{id},
          .started_at = TimeNs{at},
          .finished_at = TimeNs{at + 5},
          .parts = {{.request = RequestId{id}, .prefill_tokens = 3}},
          .preempted = {RequestId{id + 100}}};
}

std::vector<uint64_t> Ids(const std::vector<StepRecord>& steps) {
  std::vector<uint64_t> ids;
  for (const StepRecord& step : steps) {
    EXPECT_EQ(step.parts.at(0).request.value, step.id.value);
    EXPECT_EQ(step.preempted.at(0).value, step.id.value + 100);
    ids.push_back(step.id.value);
  }
  return ids;
}

TEST(StepLog, KeepsTheLastStepsInOrder) {
  StepLog log(4);
  EXPECT_TRUE(log.Since(std::nullopt, 10).empty());
  EXPECT_TRUE(log.Times(TimeNs{0}).empty());
  for (uint64_t id = 0; id < 11; ++id) {
    StepRecord record = Step(id);
    log.Add(record);
    EXPECT_TRUE(record.parts.empty() && record.preempted.empty());
    const uint64_t oldest = id < 4 ? 0 : id - 3;
    const std::vector<uint64_t> ids = Ids(log.Since(std::nullopt, 10));
    EXPECT_EQ(ids.front(), oldest);
    EXPECT_EQ(ids.back(), id);
    EXPECT_EQ(ids.size(), id - oldest + 1);
  }
  using Expected = std::vector<uint64_t>;
  EXPECT_EQ(Ids(log.Since(StepId{8}, 10)), (Expected{9, 10}));
  EXPECT_EQ(Ids(log.Since(StepId{3}, 10)), (Expected{7, 8, 9, 10}));
  EXPECT_EQ(Ids(log.Since(StepId{10}, 10)), Expected{});
  EXPECT_EQ(Ids(log.Since(StepId{99}, 10)), Expected{});
  EXPECT_EQ(Ids(log.Since(StepId{3}, 2)), (Expected{9, 10})) << "the last ones, not the next ones";
  const std::vector<StepTime> times = log.Times(TimeNs{85});
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].started_at, TimeNs{90});
  EXPECT_EQ(times[1].finished_at, TimeNs{105});
}

TEST(EngineSteps, EveryTokenIsInTheStepThatComputedIt) {
  Bench bench({.chunk = 16});
  const RequestId first = bench.Submit(bench.Greedy(kStory, 5)), second = bench.Submit(bench.Greedy(kOther, 3));
  bench.Finish();
  std::map<RequestId, StepPart> sums;
  std::map<RequestId, uint32_t> waits;
  std::optional<StepRecord> last;
  for (const StepRecord& step : bench.engine().step_log().Since(std::nullopt, 1000)) {
    EXPECT_LT(step.started_at, step.finished_at);
    if (last) {
      EXPECT_EQ(step.id.value, last->id.value + 1);
      EXPECT_LE(last->finished_at, step.started_at);
    }
    for (const StepPart& part : step.parts) {
      EXPECT_LE(part.decode_tokens, 1u);
      EXPECT_TRUE(part.decode_tokens == 0 || sums[part.request].prefill_tokens > 0);
      sums[part.request].prefill_tokens += part.prefill_tokens;
      sums[part.request].decode_tokens += part.decode_tokens;
      waits[part.request] += part.waited_ns > 0 ? 1 : 0;
    }
    last = step;
  }
  for (const RequestId id : {first, second}) {
    const Usage& usage = bench.Of(id).usage;
    EXPECT_EQ(sums[id].prefill_tokens, usage.prompt_tokens - usage.cached_tokens);
    EXPECT_EQ(sums[id].decode_tokens, usage.output_tokens - 1) << "the last one is not computed";
    EXPECT_EQ(waits[id], 1u);
  }
}

TEST(EngineSteps, TellWhoWasPutBack) {
  Bench bench({.frames = 12, .reuse = false});
  const RequestId first = bench.Submit(bench.Greedy(kStory, 120)), second = bench.Submit(bench.Greedy(kOther, 120));
  bench.Finish();
  uint32_t preempted = 0, computed = 0;
  for (const StepRecord& step : bench.engine().step_log().Since(std::nullopt, 1000)) {
    for (const RequestId id : step.preempted) {
      EXPECT_TRUE(id == first || id == second);
      ++preempted;
    }
    for (const StepPart& part : step.parts) computed += part.prefill_tokens + part.decode_tokens;
  }
  EXPECT_GT(preempted, 0u);
  EXPECT_EQ(preempted, bench.engine().Stats().preemptions);
  EXPECT_EQ(computed, bench.engine().Stats().computed_tokens);
}

}  // namespace
}  // namespace kvist::engine
