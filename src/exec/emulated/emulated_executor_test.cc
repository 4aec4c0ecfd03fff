#include "exec/emulated/emulated_executor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "device/device_file.h"

namespace kvist::exec {
namespace {

cost::StepModel Model() {
  const device::Catalog catalog(KVIST_SOURCE_DIR "/devices");
  return *cost::StepModel::Create(
      {.device = *catalog.FindDevice("h100"), .shape = *cost::FindModelShape("llama-3.1-8b")});
}

EmulatedOptions Options(bool plan_ahead = false) {
  return {.limits = {.tokens_per_step_max = 4096,
                     .slices_per_step_max = 64,
                     .block_tokens = 16,
                     .vocab_size = 1000,
                     .context_tokens_max = 1 << 20},
          .tokens = {.alphabet = {TokenId{5}}},
          .plan_ahead = plan_ahead};
}

/// One request of so many new tokens after so many others.
step::StepPlan PlanOf(uint32_t tokens, uint32_t context) {
  step::StepPlan plan;
  plan.tokens.resize(tokens, {.known = TokenId{1}});
  plan.segments.push_back({SpanId{1}, 0, context + tokens});
  plan.slices.push_back({.request = RequestId{1},
                         .position = context,
                         .tokens_count = tokens,
                         .segments_count = 1,
                         .commit_count = tokens,
                         .sampling = step::Sampling{}});
  return plan;
}

TEST(EmulatedExecutor, AStepTakesWhatTheModelSaysOnAVirtualClock) {
  VirtualClock clock;
  EmulatedExecutor executor(Model(), Options(), clock);
  EXPECT_EQ(executor.Name(), "emulated-h100");
  ASSERT_TRUE(executor.Submit(PlanOf(1000, 500)).ok());
  EXPECT_FALSE(executor.Poll()->has_value());
  cost::StepLoad load;
  load.Add(1000, 500, true, 0);
  cost::StepModel model = Model();
  const TimeNs due = *executor.NextCompletion();
  EXPECT_EQ(due.value, static_cast<int64_t>(model.Cost(load).ns()));
  clock.AdvanceTo(TimeNs{due.value - 1});
  EXPECT_FALSE(executor.Poll()->has_value());
  clock.AdvanceTo(due);
  const step::StepResult result = **executor.Poll();
  EXPECT_EQ(result.finished_at, due);
  EXPECT_EQ(executor.last_finished_at(), due);
  EXPECT_EQ(executor.totals().steps, 1u);
  EXPECT_EQ(executor.totals().cost.ns(), model.Cost(load).ns());
  EXPECT_FALSE(executor.NextCompletion().has_value());
}

TEST(EmulatedExecutor, PlanningAheadKeepsTheDeviceBusyWithOneStepAtATime) {
  VirtualClock clock;
  EmulatedExecutor executor(Model(), Options(/*plan_ahead=*/true), clock);
  TimeNs before{0};
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(executor.Submit(PlanOf(512, 0)).ok());
    clock.AdvanceTo(*executor.NextCompletion());
    const step::StepResult result = **executor.Poll();
    EXPECT_EQ(result.started_at, before) << "right after the one before";
    EXPECT_EQ(clock.Now(), result.started_at) << "it comes back when it starts";
    EXPECT_GT(result.finished_at, result.started_at);
    before = result.finished_at;
  }
  EXPECT_EQ(static_cast<double>(before.value), std::floor(executor.totals().cost.ns() / 4) * 4);
}

/// Is done when the test says so, and samples token 7.
class ByHand final : public step::Executor {
 public:
  explicit ByHand(const Clock& clock) : clock_(clock) {}
  std::string_view Name() const override { return "by hand"; }
  const step::ExecutorLimits& Limits() const override { return limits_; }
  absl::Status Submit(step::StepPlan&& plan) override {
    plan_ = std::move(plan);
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<step::StepResult>> Poll() override { return std::exchange(result_, std::nullopt); }
  std::optional<TimeNs> NextCompletion() const override { return std::nullopt; }
  void SetWake(std::function<void()> wake) override { wake_ = std::move(wake); }

  void Finish() {
    result_.emplace();
    result_->id = plan_.id;
    result_->plan = std::move(plan_);
    result_->sampled = {TokenId{7}};
    result_->finished_at = clock_.Now();
    wake_();
  }

 private:
  const Clock& clock_;
  const step::ExecutorLimits limits_ = Options().limits;
  step::StepPlan plan_;
  std::optional<step::StepResult> result_;
  std::function<void()> wake_;
};

TEST(EmulatedExecutor, AStepOfASmallModelEndsWithTheLaterOfDeviceAndModel) {
  VirtualClock clock;
  auto made = std::make_unique<ByHand>(clock);
  ByHand& model = *made;
  std::vector<std::pair<int64_t, int64_t>> notices;
  EmulatedExecutor executor(
      Model(),
      {.real_time = true,
       .notices = {.late = [&](int64_t device, int64_t late) { notices.emplace_back(device, late); }}},
      clock, std::move(made));
  const auto ready = [&] {
    const auto result = executor.Poll();
    return result.ok() && result->has_value();
  };
  // The model is first.
  ASSERT_TRUE(executor.Submit(PlanOf(100, 0)).ok());
  EXPECT_TRUE(absl::IsUnavailable(executor.Submit(PlanOf(100, 0))));
  EXPECT_FALSE(executor.NextCompletion().has_value());
  model.Finish();
  EXPECT_FALSE(ready());
  EXPECT_TRUE(absl::IsUnavailable(executor.Submit(PlanOf(100, 0))));
  const TimeNs due = *executor.NextCompletion();
  clock.AdvanceTo(TimeNs{due.value - 1});
  EXPECT_FALSE(ready());
  clock.AdvanceTo(due);
  const step::StepResult result = **executor.Poll();
  EXPECT_EQ(result.finished_at, due);
  EXPECT_EQ(result.sampled, std::vector<TokenId>{TokenId{7}});
  EXPECT_EQ(result.plan.tokens.size(), 100u);
  EXPECT_EQ(executor.late().steps, 0u);
  // The device is first, twice: it is said once.
  const int64_t device_ns = due.value;
  for (int i = 1; i <= 2; ++i) {
    const TimeNs start = clock.Now();
    ASSERT_TRUE(executor.Submit(PlanOf(100, 0)).ok());
    clock.AdvanceTo(start + 10 * device_ns);
    EXPECT_FALSE(ready());
    model.Finish();
    const step::StepResult late = **executor.Poll();
    EXPECT_EQ(late.started_at, start);
    EXPECT_EQ(late.finished_at, start + 10 * device_ns);
    EXPECT_EQ(executor.late().steps, static_cast<uint64_t>(i));
    EXPECT_EQ(executor.late().ns, i * 9 * device_ns);
  }
  EXPECT_EQ(notices, (std::vector<std::pair<int64_t, int64_t>>{{device_ns, 10 * device_ns}}));
}

TEST(SyntheticTokens, FollowFromTheTextAndEndAsOftenAsIsSaid) {
  SyntheticTokens tokens{.alphabet = {TokenId{3}, TokenId{4}, TokenId{5}}, .end = TokenId{0}, .end_chance = 0.05};
  int ends = 0;
  constexpr int kDraws = 20000;
  for (uint32_t i = 0; i < kDraws; ++i) {
    const TokenId next = tokens.Next(TokenId{i % 7}, i);
    EXPECT_EQ(next, tokens.Next(TokenId{i % 7}, i));
    EXPECT_TRUE(next.value == 0 || (next.value >= 3 && next.value <= 5));
    ends += next.value == 0 ? 1 : 0;
  }
  EXPECT_NEAR(ends, 0.05 * kDraws, 5 * std::sqrt(0.05 * kDraws));
  EXPECT_NEAR(std::exp(SyntheticTokens::Logprob(true, 100)) + 99 * std::exp(SyntheticTokens::Logprob(false, 100)), 1,
              1e-5);
}

}  // namespace
}  // namespace kvist::exec
