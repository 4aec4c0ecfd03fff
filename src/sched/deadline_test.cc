#include <gtest/gtest.h>

#include "sched/policy_testutil.h"

namespace kvist::sched {
namespace {

constexpr StepBudget kLarge{.tokens_max = 512, .requests_max = 8, .blocks_free = 1000, .block_tokens = 16};

double StepNs(const StepDecision& decision, std::span<const RequestView> views, const StepCost& cost) {
  StepWork work;
  for (const Advance& advance : decision.advance) {
    const RequestView& view = *std::ranges::find(views, advance.request, &RequestView::id);
    work.Add(advance.tokens, view.context_tokens, advance.tokens == view.tokens_known - view.tokens_computed);
  }
  return cost.Ns(work);
}

TEST(DeadlinePolicy, EarliestDeadlineFirst) {
  auto policy = NewDeadlinePolicy({.chunk_tokens_max = 64});
  StepDecision decision;
  std::vector<RequestView> waiting{View(1, 40, 0), View(2, 40, 0), View(3, 40, 0)};
  waiting[1].first_token_due = TimeNs{2'000'000'000};
  waiting[2].first_token_due = TimeNs{1'000'000'000};  // The first has none: it counts as five seconds.
  policy->Decide({}, waiting, kBudget, TimeNs{0}, decision);
  EXPECT_EQ(IdsOf(decision), (std::vector<uint64_t>{3, 2}));
}

TEST(DeadlinePolicy, TheChunkIsTheLargestThatKeepsTheNextTokenInTime) {
  auto policy = NewDeadlinePolicy({.chunk_tokens_max = 512});
  StepBudget budget = kLarge;
  budget.cost.error_ratio = 0;
  StepDecision decision;
  std::vector<RequestView> views{View(1, 1001, 1000), View(2, 4000, 500)};
  uint32_t last = 0;
  for (const int64_t due_ms : {20, 40, 80, 160}) {
    views[0].next_token_due = TimeNs{due_ms * 1'000'000};
    policy->Decide(views, {}, budget, TimeNs{0}, decision);
    const uint32_t chunk = TokensOf(decision, 2);
    EXPECT_LE(StepNs(decision, views, budget.cost), static_cast<double>(due_ms) * 1e6) << due_ms;
    StepDecision more{.advance = {{RequestId{1}, 1}, {RequestId{2}, chunk + 1}}, .preempt = {}};
    EXPECT_GT(StepNs(more, views, budget.cost), static_cast<double>(due_ms) * 1e6) << due_ms;
    EXPECT_GT(chunk, last);
    last = chunk;
  }
  // Where predictions are off, some time is kept free.
  budget.cost.error_ratio = 0.2;
  policy->Decide(views, {}, budget, TimeNs{0}, decision);
  EXPECT_LE(StepNs(decision, views, budget.cost), 160e6 / 1.4);
}

TEST(DeadlinePolicy, PromptsGetAFifthOfTheTimeWhenNoDeadlineCanBeKept) {
  auto policy = NewDeadlinePolicy({});
  StepDecision decision;
  std::vector<RequestView> running{View(1, 1001, 1000), View(2, 4000, 500), View(3, 4000, 500)};
  running[0].next_token_due = TimeNs{0};  // Long past.
  policy->Decide(running, {}, kLarge, TimeNs{1'000'000'000}, decision);
  EXPECT_EQ(TokensOf(decision, 1), 1u);
  EXPECT_EQ(TokensOf(decision, 2), 1u);
  EXPECT_EQ(TokensOf(decision, 3), 0u);
  for (uint64_t id = 4; id <= 8; ++id) running.push_back(View(id, 1001, 1000));
  StepDecision decodes;
  for (const RequestView& view : running) {
    if (view.tokens_known == 1001) decodes.advance.push_back({view.id, 1});
  }
  policy->Decide(running, {}, kLarge, TimeNs{1'000'000'000}, decision);
  const double alone = StepNs(decodes, running, kLarge.cost), step = StepNs(decision, running, kLarge.cost);
  EXPECT_GT(step, 1.15 * alone);
  EXPECT_LE(step, 1.25 * alone);
}

TEST(DeadlinePolicy, WithoutAWishChunksGrowWhenPromptsTakeMuchOfTheTime) {
  auto policy = NewDeadlinePolicy({.chunk_tokens_max = 512});
  StepDecision decision;
  std::vector<RequestView> running{View(1, 1001, 1000), View(2, 4000, 500)};
  const auto chunk_at = [&](double share) {
    StepBudget budget = kLarge;
    budget.busy_share = share;
    policy->Decide(running, {}, budget, TimeNs{0}, decision);
    return TokensOf(decision, 2);
  };
  const uint32_t at_leisure = chunk_at(0);
  EXPECT_LT(at_leisure, 200u);
  EXPECT_EQ(chunk_at(0.15), at_leisure);  // One long prompt.
  EXPECT_GT(chunk_at(0.25), at_leisure + 50);
  EXPECT_EQ(chunk_at(0.9), 511u);
}

TEST(DeadlinePolicy, WithoutDecodesAChunkIsReadByAFewPrompts) {
  auto policy = NewDeadlinePolicy({.chunk_tokens_max = 100, .prefills_max = 2});
  StepDecision decision;
  std::vector<RequestView> waiting{View(1, 40, 0), View(2, 40, 0), View(3, 40, 0)};
  policy->Decide({}, waiting, kLarge, TimeNs{0}, decision);
  EXPECT_EQ(IdsOf(decision), (std::vector<uint64_t>{1, 2}));
}

TEST(DeadlinePolicy, LessUrgentDecodesAreLeftOutWhereTheyWouldBeLate) {
  auto policy = NewDeadlinePolicy({});
  StepDecision decision;
  std::vector<RequestView> running;
  for (uint64_t id = 1; id <= 8; ++id) {
    running.push_back(View(id, 33, 32));
    running.back().priority = id <= 2 ? 128 : 255;
    running.back().next_token_due = TimeNs{6'000'000};
  }
  policy->Decide(running, {}, kLarge, TimeNs{0}, decision);
  EXPECT_EQ(TokensOf(decision, 1) + TokensOf(decision, 2), 2u);
  EXPECT_LT(decision.advance.size(), 8u);
  for (size_t i = 2; i < 8; ++i) running[i].priority = 128;
  policy->Decide(running, {}, kLarge, TimeNs{0}, decision);
  EXPECT_EQ(decision.advance.size(), 8u);
}

}  // namespace
}  // namespace kvist::sched
