#include <gtest/gtest.h>

#include "sched/policy_testutil.h"

namespace kvist::sched {
namespace {

TEST(ChunkedPolicy, DecodesGoFirstAndPromptsFillTheRest) {
  auto policy = NewChunkedPolicy({.chunk_tokens_max = 48});
  StepDecision decision;
  std::vector<RequestView> running{View(1, 500, 100), View(2, 33, 32)};
  std::vector<RequestView> waiting{View(3, 40, 0)};
  policy->Decide(running, waiting, kBudget, TimeNs{0}, decision);
  EXPECT_EQ(TokensOf(decision, 2), 1u);
  EXPECT_EQ(TokensOf(decision, 1), 48u);
  EXPECT_EQ(TokensOf(decision, 3), 15u);
  EXPECT_EQ(decision.advance.front().request, RequestId{2});
}

TEST(ChunkedPolicy, PreemptsTheLeastUrgentBeforeTheYoungest) {
  auto policy = NewChunkedPolicy({});
  StepDecision decision;
  StepBudget budget = kBudget;
  budget.blocks_free = 0;
  std::vector<RequestView> running{View(1, 33, 32), View(2, 65, 64), View(3, 30, 29)};
  running[1].priority = 200;
  policy->Decide(running, {}, budget, TimeNs{0}, decision);
  EXPECT_EQ(decision.preempt, std::vector<RequestId>{RequestId{2}});
  EXPECT_EQ(TokensOf(decision, 1), 1u);
  EXPECT_EQ(TokensOf(decision, 3), 1u);
}

TEST(ChunkedPolicy, NobodyOvertakesInTheQueue) {
  auto policy = NewChunkedPolicy({});
  StepDecision decision;
  StepBudget budget = kBudget;
  budget.blocks_free = 10;
  std::vector<RequestView> running{View(3, 33, 32)}, waiting{View(1, 400, 0), View(2, 5, 0)};
  policy->Decide(running, waiting, budget, TimeNs{0}, decision);
  EXPECT_EQ(TokensOf(decision, 1) + TokensOf(decision, 2), 0u);
  // Who would be alone starts with what there is room for: nothing else would ever make any.
  policy->Decide({}, waiting, budget, TimeNs{0}, decision);
  EXPECT_EQ(TokensOf(decision, 1), 64u);
  EXPECT_EQ(TokensOf(decision, 2), 0u);
}

TEST(ChunkedPolicy, PreemptsTheYoungestWhenBlocksRunOut) {
  auto policy = NewChunkedPolicy({});
  StepDecision decision;
  StepBudget budget = kBudget;
  budget.blocks_free = 0;
  std::vector<RequestView> running{View(1, 33, 32), View(2, 30, 29), View(3, 65, 64)};
  std::vector<RequestView> waiting{View(4, 5, 0)};
  policy->Decide(running, waiting, budget, TimeNs{0}, decision);
  EXPECT_EQ(decision.preempt, std::vector<RequestId>{RequestId{3}});
  EXPECT_EQ(TokensOf(decision, 1), 1u);
  EXPECT_EQ(TokensOf(decision, 2), 1u);
  EXPECT_EQ(TokensOf(decision, 4), 0u);
}

}  // namespace
}  // namespace kvist::sched
