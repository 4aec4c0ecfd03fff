#include "lab/step_speed.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "lab/fake_executor_testutil.h"

namespace kvist::lab {
namespace {

constexpr step::ExecutorLimits kStepLimits{.tokens_per_step_max = 64,
                                           .slices_per_step_max = 9,
                                           .block_tokens = kv::kBlockTokens,
                                           .vocab_size = 100,
                                           .context_tokens_max = 400};

/// What a step costs: so much, more for each token, and for each key that one sees.
double LinearNs(uint32_t chunk, uint32_t before, uint32_t decodes, uint32_t view) {
  const double pairs = 1.0 * chunk * before + 0.5 * chunk * (chunk + 1) + 1.0 * decodes * view;
  return 20'000 + 1000.0 * (chunk + decodes) + 10 * pairs;
}

/// Of the plan as it is, not as somebody meant it.
double CostNs(const step::StepPlan& plan) {
  double ns = 20'000;
  for (const step::Slice& slice : plan.slices) {
    double view = 0;
    for (uint32_t i = 0; i < slice.segments_count; ++i) view += plan.segments[slice.segments_begin + i].tokens_count;
    const double before = view - slice.tokens_count;
    ns += 1000.0 * slice.tokens_count;
    ns += 10 * (slice.tokens_count * before + 0.5 * slice.tokens_count * (slice.tokens_count + 1));
  }
  return ns;
}

struct Machine {
  absl::Status Measure(std::vector<MeasuredStep>& to_measure) {
    const auto progress = [this](uint32_t now) {
      round = now;
      return steps < steps_max;
    };
    return MeasureSteps(executor, memory, clock, {.rounds = 3, .progress = progress}, to_measure);
  }

  uint64_t steps = 0, steps_max = UINT64_MAX;
  uint32_t round = 0;
  double factor_of_last = 1;  ///< Of the times in the last round.
  FakeExecutor executor{kStepLimits, [this](const step::StepPlan& plan, step::StepResult& result) {
                          ++steps;
                          result.finished_at =
                              TimeNs{static_cast<int64_t>(CostNs(plan) * (round == 3 ? factor_of_last : 1))};
                        }};
  kv::KvMemory memory{{.frames_count = 512, .reuse = false}};
  RealClock clock;
};

TEST(StepGrid, HasPromptsSingleTokensAndBothInsideTheLimits) {
  const std::vector<MeasuredStep> steps = StepGrid(kStepLimits, /*decodes_max=*/16, /*context_max=*/1000);
  std::set<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>> places;
  uint32_t chunk_max = 0, decodes_max = 0, view_max = 0, before_max = 0;
  size_t prompts = 0, singles = 0, both = 0;
  for (const MeasuredStep& step : steps) {
    EXPECT_TRUE(places.emplace(step.chunk, step.before, step.decodes, step.view).second) << "each once";
    EXPECT_LE(step.chunk + step.decodes, kStepLimits.tokens_per_step_max);
    EXPECT_LE((step.chunk > 0 ? 1 : 0) + step.decodes, kStepLimits.slices_per_step_max);
    EXPECT_LE(step.chunk + step.before, kStepLimits.context_tokens_max);
    EXPECT_EQ(step.decodes > 0, step.view > 0);
    ++(step.chunk == 0 ? singles : step.decodes == 0 ? prompts : both);
    chunk_max = std::max(chunk_max, step.chunk);
    before_max = std::max(before_max, step.before);
    decodes_max = std::max(decodes_max, step.decodes);
    view_max = std::max(view_max, step.view);
  }
  EXPECT_EQ(decodes_max, 8u) << "a slice is left for a prompt";
  EXPECT_EQ(chunk_max, 56u) << "what single tokens leave of a step";
  EXPECT_EQ(before_max, 344u) << "what a prompt leaves of a context";
  EXPECT_EQ(view_max, 344u);
  EXPECT_GT(prompts, 4u);
  EXPECT_GT(singles, 4u);
  EXPECT_GT(both, prompts);
}

TEST(MeasureSteps, FindsTheTimeOfEachStepOfTheGrid) {
  Machine machine;
  std::vector<MeasuredStep> steps = StepGrid(kStepLimits, 8, 300);
  const absl::Status status = machine.Measure(steps);
  ASSERT_TRUE(status.ok()) << status;
  for (const MeasuredStep& step : steps) {
    const double ns = LinearNs(step.chunk, step.before, step.decodes, step.view);
    EXPECT_NEAR(step.seconds, ns * 1e-9, 1e-9)
        << step.chunk << " " << step.before << " " << step.decodes << " " << step.view;
    EXPECT_EQ(step.spread, 0);
  }
  EXPECT_EQ(machine.memory.AvailableFrames(), 512u);
}

TEST(MeasureSteps, TheFirstSingleTokensAfterAnotherStepDoNotCount) {
  std::vector<MeasuredStep> steps = {{.chunk = 32}, {.decodes = 2, .view = 16}};
  uint64_t since_prompt = 0;
  FakeExecutor executor(kStepLimits, [&](const step::StepPlan& plan, step::StepResult& result) {
    since_prompt = plan.tokens.size() > 2 ? 0 : since_prompt + 1;
    result.finished_at = TimeNs{since_prompt == 1 || since_prompt == 2 ? 9000 : 6000};
  });
  kv::KvMemory memory({.frames_count = 64, .reuse = false});
  const RealClock clock;
  ASSERT_TRUE(MeasureSteps(executor, memory, clock, {}, steps).ok());
  EXPECT_DOUBLE_EQ(steps[1].seconds, 6e-6);
  EXPECT_EQ(steps[1].spread, 0);
}

TEST(MeasureSteps, ABusyRoundDoesNotChangeTheTimesAndIsSeenInTheSpread) {
  Machine machine;
  std::vector<MeasuredStep> steady = StepGrid(kStepLimits, 8, 300), busy = steady;
  ASSERT_TRUE(machine.Measure(steady).ok());
  EXPECT_EQ(SteadinessOf(steady).unsteady, 0u);
  machine.factor_of_last = 1.5;
  ASSERT_TRUE(machine.Measure(busy).ok());
  for (size_t i = 0; i < steady.size(); ++i) {
    EXPECT_EQ(busy[i].seconds, steady[i].seconds) << "the median";
    EXPECT_NEAR(busy[i].spread, 0.5, 1e-4);
  }
  const Steadiness steadiness = SteadinessOf(busy);
  EXPECT_EQ(steadiness.unsteady, busy.size());
  EXPECT_NEAR(steadiness.median_spread, 0.5, 1e-4);
  EXPECT_NEAR(steadiness.worst_spread, 0.5, 1e-4);
}

TEST(MeasureSteps, StopsWhenAskedAndSaysWhatDoesNotFit) {
  Machine machine;
  machine.steps_max = 8;
  std::vector<MeasuredStep> steps = StepGrid(kStepLimits, 8, 300);
  const absl::Status stopped = machine.Measure(steps);
  EXPECT_TRUE(absl::IsCancelled(stopped)) << stopped;
  EXPECT_EQ(machine.steps, 8u);
  kv::KvMemory small({.frames_count = 8, .reuse = false});
  EXPECT_TRUE(absl::IsInvalidArgument(MeasureSteps(machine.executor, small, machine.clock, {}, steps)));
}

}  // namespace
}  // namespace kvist::lab
