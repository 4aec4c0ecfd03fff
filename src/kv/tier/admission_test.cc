#include "kv/tier/admission.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/prng.h"

namespace kvist::kv {
namespace {

TimeNs At(double s) {
  return TimeNs{static_cast<int64_t>(s * 1e9)};
}

DemotionFacts Facts(uint32_t accesses, double first_s, double last_s, double since_s, double now_s) {
  return {.accesses = accesses,
          .first_access = At(first_s),
          .last_access = At(last_s),
          .resident_since = At(since_s),
          .now = At(now_s),
          .bytes = 1000};
}

TEST(ReuseAdmission, FollowsTheFormula) {
  ReuseAdmission policy({.decay_s = 100});
  EXPECT_EQ(policy.Score(Facts(1, 0, 0, 0, 50)), 0);
  EXPECT_NEAR(policy.Score(Facts(4, 0, 30, 0, 50)), 3.0 / 50 * std::exp(-20.0 / 100), 1e-12);
  // A stay in memory of its own, after an earlier one.
  EXPECT_NEAR(policy.Score(Facts(4, 0, 30, 20, 50)), 3.0 / 30 * std::exp(-20.0 / 100), 1e-12);
}

TEST(ReuseAdmission, BlocksThatMemoryHoldsLongEnoughAreNotWritten) {
  ReuseAdmission policy;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(policy.Admit(Facts(1, i, i, i, i + 400)));
  EXPECT_NEAR(policy.memory_life_s(), 400, 1);
  EXPECT_FALSE(policy.Admit(Facts(10, 0, 90, 0, 490)));  // Used every 10 s, and then no more.
  EXPECT_TRUE(policy.Admit(Facts(2, 0, 300, 0, 700)));
}

TEST(WriteBudget, WritesWhatIsAllowedWhateverComes) {
  // Scores over many powers of ten, twice and twenty times as much as may be written, at an uneven pace.
  for (const double demand : {2.0, 20.0}) {
    for (const double days : {0.25, 3.0}) {
      constexpr uint64_t kPerDay = 86400 * uint64_t{100000};
      WriteBudget budget(kPerDay);
      Prng prng(7);
      double now = 0, written = 0, best = 0, worst = 0;
      while (now < days * 86400) {
        const double pace = std::sin(now / 3000) > 0 ? 0.5 : 1.5;
        now += pace * -std::log(1 - prng.Uniform()) / demand * 10;
        const double score = std::exp(12 * prng.Uniform() - 10);
        const bool taken = budget.Take(score, 1000000, At(now));
        written += taken ? 1000000 : 0;
        (score > 1 ? best : worst) += taken ? 1 : 0;
      }
      EXPECT_NEAR(written / (kPerDay * days), 1, 0.05) << demand << " over " << days;
      EXPECT_GT(best, 0);
      if (demand > 5) {
        EXPECT_LT(worst, best / 4);
      }
    }
  }
}

TEST(WriteBudget, LittleDemandIsWrittenWhole) {
  WriteBudget budget(86400 * uint64_t{1000});
  for (int i = 1; i < 1000; ++i) EXPECT_TRUE(budget.Take(1e-9, 500, At(i)));
  EXPECT_FALSE(budget.Take(0, 500, At(1000)));
  WriteBudget none(0);
  EXPECT_TRUE(none.Take(1e-9, UINT64_MAX, At(1)));
}

TEST(Admission, NamesAndBaselines) {
  for (const char* name : {"all", "through", "a5"}) EXPECT_EQ(MakeAdmissionPolicy(name, {})->name(), name);
  EXPECT_EQ(MakeAdmissionPolicy("none", {}), nullptr);
  EXPECT_TRUE(MakeAdmissionPolicy("through", {})->at_once());
  EXPECT_FALSE(MakeAdmissionPolicy("all", {})->at_once());
}

TEST(Promotion, WhatComesBackSoonEnough) {
  EXPECT_TRUE(ShouldPromote(Facts(3, 0, 60, 60, 61), 100));
  EXPECT_FALSE(ShouldPromote(Facts(3, 0, 600, 600, 601), 100));
}

}  // namespace
}  // namespace kvist::kv
