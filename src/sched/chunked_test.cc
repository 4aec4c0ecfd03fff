#include <gtest/gtest.h>

#include "base/prng.h"
#include "sched/policy.h"

namespace kvist::sched {
namespace {

constexpr StepBudget kBudget{.tokens_max = 64, .requests_max = 8, .blocks_free = 100, .block_tokens = 16};

RequestView View(uint64_t id, uint32_t known, uint32_t computed) {
  return {.id = RequestId{id},
          .tokens_known = known,
          .tokens_computed = computed,
          .blocks_held = (computed + 15) / 16,
          .blocks_own = (computed + 15) / 16};
}

uint32_t TokensOf(const StepDecision& decision, uint64_t id) {
  for (const Advance& advance : decision.advance) {
    if (advance.request == RequestId{id}) return advance.tokens;
  }
  return 0;
}

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

/// Whatever the queues look like, every registered policy stays inside its budget and gives somebody work when it can.
TEST(Policies, RandomQueuesNeverBreakTheBudget) {
  for (const PolicyEntry& entry : Policies()) {
    auto policy = entry.make({.chunk_tokens_max = 32});
    Prng prng(7);
    StepDecision decision;
    for (int round = 0; round < 20000; ++round) {
      std::vector<RequestView> running, waiting;
      uint64_t id = 1;
      for (uint64_t n = prng.Below(10); n > 0; --n) {
        const uint32_t known = 1 + static_cast<uint32_t>(prng.Below(200));
        running.push_back(View(id++, known, static_cast<uint32_t>(prng.Below(4) == 0 ? prng.Below(known) : known - 1)));
      }
      for (uint64_t n = prng.Below(10); n > 0; --n)
        waiting.push_back(View(id++, 1 + static_cast<uint32_t>(prng.Below(200)), 0));
      const StepBudget budget{.tokens_max = 1 + static_cast<uint32_t>(prng.Below(80)),
                              .requests_max = 1 + static_cast<uint32_t>(prng.Below(8)),
                              .blocks_free = static_cast<uint32_t>(prng.Below(30)),
                              .block_tokens = 16};
      policy->Decide(running, waiting, budget, TimeNs{0}, decision);
      ASSERT_EQ(FindFault(running, waiting, budget, decision), "") << entry.name << " round " << round;
      if (budget.blocks_free >= 13 && !(running.empty() && waiting.empty())) {
        ASSERT_FALSE(decision.advance.empty()) << entry.name << " round " << round;
      }
    }
  }
}

TEST(FindFault, NamesEachKindOfFault) {
  std::vector<RequestView> running{View(1, 10, 5)}, waiting{View(2, 10, 0)};
  auto fault = [&](const StepDecision& decision, StepBudget budget = kBudget) {
    return FindFault(running, waiting, budget, decision);
  };
  EXPECT_EQ(fault({.advance = {{RequestId{1}, 5}}}), "");
  EXPECT_NE(fault({.advance = {{RequestId{1}, 6}}}), "");
  EXPECT_NE(fault({.advance = {{RequestId{1}, 0}}}), "");
  EXPECT_NE(fault({.advance = {{RequestId{9}, 1}}}), "");
  EXPECT_NE(fault({.advance = {{RequestId{1}, 1}, {RequestId{1}, 1}}}), "");
  EXPECT_NE(fault({.advance = {{RequestId{1}, 1}}, .preempt = {RequestId{1}}}), "");
  EXPECT_NE(fault({.preempt = {RequestId{2}}}), "");
  EXPECT_NE(fault({.advance = {{RequestId{2}, 10}}},
                  {.tokens_max = 9, .requests_max = 8, .blocks_free = 9, .block_tokens = 16}),
            "");
  EXPECT_NE(fault({.advance = {{RequestId{2}, 1}}},
                  {.tokens_max = 9, .requests_max = 0, .blocks_free = 9, .block_tokens = 16}),
            "");
  EXPECT_NE(fault({.advance = {{RequestId{2}, 1}}},
                  {.tokens_max = 9, .requests_max = 8, .blocks_free = 0, .block_tokens = 16}),
            "");
}

}  // namespace
}  // namespace kvist::sched
