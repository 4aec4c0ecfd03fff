#include "sched/frame_admission.h"

#include <gtest/gtest.h>

namespace kvist::sched {
namespace {

constexpr int64_t kPeriod = 100'000'000;

/// Sessions whose frames take the longer the more there are.
uint32_t Found(FrameAdmission& admission, double share_each, int rounds = 400) {
  for (int round = 0; round < rounds; ++round) {
    if (admission.MayOpen(share_each)) admission.Open();
    for (uint32_t i = 0; i < admission.sessions(); ++i) {
      admission.Observe(static_cast<int64_t>(share_each * admission.sessions() * kPeriod), kPeriod);
    }
  }
  return admission.sessions();
}

TEST(FrameAdmission, FindsTheNumberThatFits) {
  for (const double share : {0.02, 0.1, 0.3, 0.5}) {
    FrameAdmission admission;
    const uint32_t found = Found(admission, share, 2000);
    EXPECT_LE(share * found, 0.8001) << share;
    EXPECT_GT(share * (found + 1), 0.8) << share;
    EXPECT_EQ(admission.misses(), 0u);
  }
}

TEST(FrameAdmission, RefusesAFrameThatIsTooLongAlone) {
  EXPECT_FALSE(FrameAdmission().MayOpen(0.9));
}

TEST(FrameAdmission, ANumberThatMissedIsNotTriedAgainSoon) {
  FrameAdmission admission({.retry_frames = 100});
  Found(admission, 0.1);
  const uint32_t before = admission.sessions();
  admission.Observe(2 * kPeriod, kPeriod);
  admission.Close();
  for (int i = 0; i < 99; ++i) {
    EXPECT_FALSE(admission.MayOpen(0.01)) << i;
    admission.Observe(kPeriod / 10, kPeriod);
  }
  for (int i = 0; i < 300; ++i) admission.Observe(kPeriod / 10, kPeriod);
  EXPECT_TRUE(admission.MayOpen(0.01));
  EXPECT_LT(admission.sessions(), before);
}

TEST(FrameAdmission, TheOneTooManyGoesAndNobodyElse) {
  FrameAdmission admission;
  for (int i = 0; i < 4; ++i) admission.Open();
  EXPECT_FALSE(admission.IsOver());
  admission.Observe(kPeriod + 1, kPeriod);
  EXPECT_TRUE(admission.IsOver());
  admission.Close();
  EXPECT_FALSE(admission.IsOver());
  for (int i = 0; i < 5; ++i) admission.Observe(kPeriod + 1, kPeriod);  // What had waited.
  EXPECT_FALSE(admission.IsOver());
  for (int i = 0; i < 20; ++i) admission.Observe(kPeriod / 4, kPeriod);
  admission.Observe(kPeriod + 1, kPeriod);  // The three are too many as well.
  EXPECT_TRUE(admission.IsOver());
}

TEST(FrameAdmission, WaitsUntilANewSessionShows) {
  FrameAdmission admission({.settle_frames = 4});
  admission.Open();
  EXPECT_FALSE(admission.MayOpen(0.01));
  for (int i = 0; i < 4; ++i) admission.Observe(kPeriod / 100, kPeriod);
  EXPECT_TRUE(admission.MayOpen(0.01));
}

TEST(FrameAdmission, AFrameThatDoesNotFitAloneIsRefusedBesideOthersToo) {
  FrameAdmission admission;
  admission.Open();
  for (int i = 0; i < 100; ++i) admission.Observe(60, 1000);
  EXPECT_TRUE(admission.MayOpen(0.06));
  EXPECT_FALSE(admission.MayOpen(40));
}

TEST(FrameAdmission, OneVeryLateAnswerIsForgottenSoonAndWithTheLastSession) {
  FrameAdmission admission;
  admission.Open();
  for (int i = 0; i < 100; ++i) admission.Observe(60, 1000);
  admission.Observe(400'000, 1000);
  EXPECT_LT(admission.load(), 0.8);
  admission.Close();
  EXPECT_EQ(admission.load(), 0);
  EXPECT_TRUE(admission.MayOpen(0.06));
}

}  // namespace
}  // namespace kvist::sched
