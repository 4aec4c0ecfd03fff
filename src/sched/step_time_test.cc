#include "sched/step_time.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/prng.h"

namespace kvist::sched {
namespace {

StepWork Decodes(uint32_t rows, uint32_t context) {
  StepWork work;
  for (uint32_t i = 0; i < rows; ++i) work.Add(1, context, true);
  return work;
}
StepWork Mixed(uint32_t rows, uint32_t prompt, uint32_t context) {
  StepWork work = Decodes(rows, context);
  work.Add(prompt, context, false);
  return work;
}
StepWork Random(Prng& prng) {
  const auto rows = static_cast<uint32_t>(prng.Below(16)), context = static_cast<uint32_t>(prng.Below(4000));
  return prng.Below(2) == 0 ? Decodes(rows + 1, context)
                            : Mixed(rows, 2 + static_cast<uint32_t>(prng.Below(510)), context);
}

/// A machine with a price for everything, in nanoseconds.
double Machine(const StepWork& work, double speed = 1) {
  return (1e6 + 3e5 * work.tokens + 2e5 * work.sampled + 150.0 * static_cast<double>(work.decode_context) +
          20.0 * static_cast<double>(work.prompt_pairs)) /
         speed;
}

/// Reading the weights takes some time however few rows there are; arithmetic takes over.
double Roofline(const StepWork& work) {
  return std::max(20e6, 4e5 * work.tokens) + 100.0 * static_cast<double>(work.decode_context);
}

template <class Cost>
double ErrorOn(const StepTimeModel& model, const StepWork& work, Cost machine) {
  return std::abs(model.cost().Ns(work) / machine(work) - 1);
}

TEST(StepTimeModel, IsUsableBeforeItHasSeenAnything) {
  const StepTimeModel model;
  EXPECT_GT(model.cost().Ns(Decodes(1, 100)), 0);
  EXPECT_GT(model.cost().Ns(Mixed(1, 512, 0)), model.cost().Ns(Mixed(1, 16, 0)));
}

TEST(StepTimeModel, TheFirstStepSetsTheScale) {
  for (const double speed : {0.01, 100.0}) {
    StepTimeModel model;
    const auto machine = [&](const StepWork& work) { return Machine(work, speed); };
    model.Observe(Mixed(4, 200, 500), static_cast<int64_t>(machine(Mixed(4, 200, 500))));
    EXPECT_LT(ErrorOn(model, Mixed(2, 300, 100), machine), 1) << speed;
    EXPECT_LT(ErrorOn(model, Decodes(4, 500), machine), 3) << speed;
  }
}

TEST(StepTimeModel, LearnsAMachineThatIsTheSumOfItsParts) {
  for (const double speed : {0.02, 1.0, 50.0}) {
    StepTimeModel model;
    Prng prng(1);
    const auto machine = [&](const StepWork& work) { return Machine(work, speed); };
    for (int i = 0; i < 600; ++i) {
      const StepWork work = Random(prng);
      model.Observe(work, static_cast<int64_t>(machine(work) * (0.95 + 0.1 * prng.Uniform())));
    }
    for (int i = 0; i < 100; ++i) EXPECT_LT(ErrorOn(model, Random(prng), machine), 0.1) << speed;
    EXPECT_LT(model.cost().error_ratio, 0.06);
    EXPECT_GT(model.cost().error_ratio, 0.01);
  }
}

TEST(StepTimeModel, FollowsTheBendWhereArithmeticTakesOver) {
  StepTimeModel model;
  Prng prng(2);
  for (int i = 0; i < 600; ++i) {
    const StepWork work = Random(prng);
    model.Observe(work, static_cast<int64_t>(Roofline(work)));
  }
  EXPECT_LT(ErrorOn(model, Decodes(4, 1000), Roofline), 0.2);
  EXPECT_LT(ErrorOn(model, Mixed(4, 400, 1000), Roofline), 0.1);
  EXPECT_LT(ErrorOn(model, Mixed(4, 100, 1000), Roofline), 0.15);
  // And no price is below nothing, so that more work never takes less time.
  for (const double price : model.cost().ns) EXPECT_GE(price, 0);
}

TEST(StepTimeModel, IsNotDisturbedByStepsThatWereStopped) {
  StepTimeModel model;
  Prng prng(3);
  const auto machine = [](const StepWork& work) { return Machine(work); };
  for (int i = 0; i < 600; ++i) {
    const StepWork work = Random(prng);
    model.Observe(work, static_cast<int64_t>(machine(work) * (i % 25 == 24 ? 300 : 1)));
  }
  for (int i = 0; i < 50; ++i) EXPECT_LT(ErrorOn(model, Random(prng), machine), 0.15);
}

TEST(StepTimeModel, FollowsAMachineThatBecomesSlower) {
  StepTimeModel model;
  Prng prng(4);
  for (const double speed : {1.0, 0.1, 2.0}) {
    const auto machine = [&](const StepWork& work) { return Machine(work, speed); };
    for (int i = 0; i < 500; ++i) {
      const StepWork work = Random(prng);
      model.Observe(work, static_cast<int64_t>(machine(work)));
    }
    for (int i = 0; i < 50; ++i) EXPECT_LT(ErrorOn(model, Random(prng), machine), 0.15) << speed;
  }
}

TEST(StepTimeModel, AnHourOfDecodingDoesNotWashOutWhatPromptsCost) {
  StepTimeModel model;
  Prng prng(5);
  const auto machine = [](const StepWork& work) { return Machine(work, 0.1); };
  for (int i = 0; i < 200; ++i) {
    const StepWork work = Random(prng);
    model.Observe(work, static_cast<int64_t>(machine(work)));
  }
  for (int i = 0; i < 20000; ++i) model.Observe(Decodes(4, 1000), static_cast<int64_t>(machine(Decodes(4, 1000))));
  EXPECT_LT(ErrorOn(model, Mixed(4, 400, 1000), machine), 0.15);
}

TEST(StepTimeModel, IgnoresStepsWithoutTime) {
  StepTimeModel model;
  model.Observe(Decodes(1, 1), 0);
  model.Observe({}, 1000);
  EXPECT_EQ(model.steps(), 0u);
}

}  // namespace
}  // namespace kvist::sched
