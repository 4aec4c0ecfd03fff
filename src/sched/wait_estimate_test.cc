#include "sched/wait_estimate.h"

#include <gtest/gtest.h>

namespace kvist::sched {
namespace {

TEST(PredictedWait, IsReadingWhatIsQueued) {
  const QueueFacts facts{.prompt_tokens = 1000, .prompt_token_ns = 2e6, .running = 2, .waiting = 3, .running_max = 8};
  EXPECT_DOUBLE_EQ(PredictedWaitNs(facts, 0), 2e9);
  EXPECT_DOUBLE_EQ(PredictedWaitNs(facts, 500), 3e9);
}

TEST(PredictedWait, IsWaitingForAPlaceWhenAllAreTaken) {
  QueueFacts facts{.prompt_token_ns = 1e6,
                   .running = 4,
                   .waiting = 0,
                   .running_max = 4,
                   .running_tokens_left = 100,
                   .token_ns = 10e6};
  EXPECT_DOUBLE_EQ(PredictedWaitNs(facts, 0), 0.25e9);  // One of the four ends in a quarter of what each has left.
  facts.waiting = 7;
  EXPECT_DOUBLE_EQ(PredictedWaitNs(facts, 0), 2e9);
  facts.prompt_tokens = 5000;  // The queue's prompts take longer than that.
  EXPECT_DOUBLE_EQ(PredictedWaitNs(facts, 10), 5.01e9);
}

TEST(PredictedWait, IsNothingForAnIdleEngine) {
  EXPECT_EQ(PredictedWaitNs({}, 0), 0);
}

}  // namespace
}  // namespace kvist::sched
