#include "serve/frame_sessions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"
#include "serve/api_error.h"

namespace kvist::serve {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMs = 1'000'000, kPeriod = 100 * kMs;

class FrameSessionsTest : public ::testing::Test {
 protected:
  /// A frame that is answered after `answer_ns`; false when it is refused.
  bool Send(const std::string& key, int64_t answer_ns, int64_t frame_ns = kMs) {
    auto frame = frames_->Enter(key, kPeriod, static_cast<double>(frame_ns));
    Wait(answer_ns);
    if (!frame.ok()) return false;
    (*frame)->Answered();
    return true;
  }

  void Wait(int64_t ns) { clock_.AdvanceTo(clock_.Now() + ns); }

  VirtualClock clock_;
  std::shared_ptr<FrameSessions> frames_ = std::make_shared<FrameSessions>(clock_);
};

TEST_F(FrameSessionsTest, LetsInAsManyAsKeepTheirPeriods) {
  std::vector<std::string> in;
  for (int round = 0; round < 200; ++round) {
    const std::string next = Cat("s", in.size());
    // Each session's frame takes a tenth of the period, one after the other.
    for (const std::string& key : in) ASSERT_TRUE(Send(key, 10 * kMs * static_cast<int64_t>(in.size()))) << key;
    if (Send(next, kMs, 10 * kMs)) in.push_back(next);
  }
  EXPECT_EQ(in.size(), 8u) << "eight tenths of a period";
  const FrameFigures figures = frames_->Figures();
  EXPECT_EQ(figures.late, 0u);
  EXPECT_GT(figures.refused, 0u);
  const auto refused = frames_->Enter("more", kPeriod, 10 * kMs);
  const ApiError error = ErrorFromStatus(refused.status());
  EXPECT_EQ(error.http_status, 429);
  EXPECT_EQ(error.code, "frames_not_schedulable");
  EXPECT_GT(error.retry_after_s, 0);
  EXPECT_THAT(error.message, HasSubstr("8 sessions are in"));
}

TEST_F(FrameSessionsTest, RefusalsSayWhatWasLookedAt) {
  const auto refusal = [&](const std::string& key, int64_t frame_ns) {
    return ErrorFromStatus(frames_->Enter(key, kPeriod, static_cast<double>(frame_ns)).status());
  };
  EXPECT_THAT(
      refusal("long", 90 * kMs).message,
      HasSubstr("expected to take 90 ms (90 % of the period) by what steps have taken so far, and 80 % is the most"));
  ASSERT_TRUE(Send("a", kMs));
  ASSERT_TRUE(Send("a", kMs));
  // Nothing is known of how loaded the machine is, and nothing is said of it.
  const ApiError early = refusal("b", kMs);
  EXPECT_THAT(early.message, HasSubstr("1 sessions are in, and what the last one takes is still being measured: 6 "));
  EXPECT_THAT(early.message, ::testing::Not(HasSubstr("%")));
  EXPECT_EQ(early.retry_after_s, 1) << "six more periods of the one that is in, in whole seconds";
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(Send("a", 75 * kMs));
  const std::string full = refusal("b", 20 * kMs).message;
  EXPECT_THAT(full, HasSubstr("slowest frames take 6"));
  EXPECT_THAT(full, HasSubstr("expected to take 20 ms (20 % of the period)"));
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(Send("a", kMs));
  ASSERT_TRUE(Send("b", kMs));
  ASSERT_TRUE(Send("a", 120 * kMs));
  EXPECT_THAT(refusal("b", kMs).message, HasSubstr("1 sessions are in, and with one more frames were late"));
}

TEST_F(FrameSessionsTest, AFrameTooLongForItsPeriodIsRefused) {
  EXPECT_FALSE(Send("a", kMs, 90 * kMs));
  EXPECT_TRUE(Send("a", kMs, 70 * kMs));
}

TEST_F(FrameSessionsTest, TheLastOneGoesWhenFramesAreLateWithIt) {
  ASSERT_TRUE(Send("a", kMs));
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(Send("a", 20 * kMs));
  ASSERT_TRUE(Send("b", 20 * kMs));
  ASSERT_TRUE(Send("a", 120 * kMs)) << "late, with b beside it";
  EXPECT_TRUE(Send("a", 20 * kMs)) << "who came first stays";
  EXPECT_FALSE(Send("b", 20 * kMs));
  EXPECT_EQ(frames_->Figures().sessions, 1u);
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(Send("a", 20 * kMs));
  EXPECT_FALSE(Send("b", 20 * kMs)) << "two were too many, and that is not tried again soon";
}

TEST_F(FrameSessionsTest, SilentSessionsAreOver) {
  EXPECT_TRUE(Send("a", kMs));
  EXPECT_EQ(frames_->Figures().sessions, 1u);
  Wait(1'500 * kMs);
  EXPECT_EQ(frames_->Figures().sessions, 1u);
  Wait(1'000 * kMs);
  EXPECT_EQ(frames_->Figures().sessions, 0u);
}

TEST_F(FrameSessionsTest, LateFramesCountOnceAndWhatCameToNothingDoesNot) {
  auto slow = frames_->Enter("a", kPeriod, kMs);
  ASSERT_TRUE(slow.ok());
  Wait(kPeriod + 1);
  EXPECT_EQ(frames_->Figures().late, 1u) << "before it is answered";
  auto next = frames_->Enter("a", kPeriod, kMs);
  ASSERT_TRUE(next.ok());
  EXPECT_FALSE(frames_->Enter("a", kPeriod, kMs).ok()) << "a third one at once";
  (*slow)->Answered();
  slow->reset();
  next->reset();  // Its client left.
  const FrameFigures figures = frames_->Figures();
  EXPECT_EQ(figures.late, 1u);
  EXPECT_EQ(figures.on_time, 0u);
  EXPECT_EQ(figures.sessions, 1u);
}

}  // namespace
}  // namespace kvist::serve
