#include <gtest/gtest.h>

#include "sched/policy_testutil.h"

namespace kvist::sched {
namespace {

TEST(SplitFusePolicy, StepsHaveOneSizeWhatEverIsInThem) {
  auto policy = NewSplitFusePolicy({.chunk_tokens_max = 48});
  StepDecision decision;
  std::vector<RequestView> running{View(1, 33, 32), View(2, 30, 20), View(3, 17, 16)}, waiting{View(4, 500, 0)};
  policy->Decide(running, waiting, kBudget, TimeNs{0}, decision);
  EXPECT_EQ(IdsOf(decision), (std::vector<uint64_t>{1, 3, 2, 4}));
  EXPECT_EQ(TokensOf(decision, 2), 10u);
  EXPECT_EQ(TokensOf(decision, 4), 48u - 12u);
  policy->Decide({}, waiting, kBudget, TimeNs{0}, decision);
  EXPECT_EQ(TokensOf(decision, 4), 48u);
}

TEST(SplitFusePolicy, DecodesThatFillTheStepLeavePromptsABlock) {
  auto policy = NewSplitFusePolicy({.chunk_tokens_max = 2});
  StepDecision decision;
  std::vector<RequestView> running{View(1, 33, 32), View(2, 17, 16), View(3, 17, 16)}, waiting{View(4, 500, 0)};
  policy->Decide(running, waiting, kBudget, TimeNs{0}, decision);
  EXPECT_EQ(TokensOf(decision, 4), 16u);
}

}  // namespace
}  // namespace kvist::sched
