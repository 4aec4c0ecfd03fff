#include "sched/busy_share.h"

#include <gtest/gtest.h>

namespace kvist::sched {
namespace {

TEST(BusyShare, IsTheShareOfStepsWithPrompts) {
  BusyShare share;
  int64_t now = 0;
  for (int i = 0; i < 4000; ++i) share.Observe(TimeNs{now += 100'000'000}, 100'000'000, i % 4 == 0);
  EXPECT_NEAR(share.share(), 0.25, 0.01);
}

TEST(BusyShare, TimeBetweenStepsIsFree) {
  BusyShare share;
  int64_t now = 0;
  for (int i = 0; i < 4000; ++i) share.Observe(TimeNs{now += 100'000'000}, 50'000'000, true);
  EXPECT_NEAR(share.share(), 0.5, 0.01);
}

TEST(BusyShare, OneLongPromptIsLittleAndTheNightForgetsTheDay) {
  BusyShare share;
  share.Observe(TimeNs{4'000'000'000}, 4'000'000'000, true);
  EXPECT_GT(share.share(), 0.1);
  EXPECT_LT(share.share(), 1.0 / 6);
  share.Observe(TimeNs{400'000'000'000}, 1'000'000, false);
  EXPECT_LT(share.share(), 1e-4);
}

TEST(BusyShare, AClockThatBeginsLateStartsFree) {
  BusyShare share;
  share.Observe(TimeNs{INT64_C(1) << 60}, 1'000'000, true);
  EXPECT_LT(share.share(), 1e-3);
}

}  // namespace
}  // namespace kvist::sched
