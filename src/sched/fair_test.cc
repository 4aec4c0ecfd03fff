#include <gtest/gtest.h>

#include "sched/composed_policy.h"
#include "sched/policy_testutil.h"

namespace kvist::sched {
namespace {

TEST(FairPolicy, TheTenantThatReceivedLeastGoesFirst) {
  auto policy = NewFairPolicy({});
  StepDecision decision;
  std::vector<RequestView> running{View(1, 500, 100)}, waiting{View(2, 40, 0), View(3, 40, 0)};
  running[0].tenant_received = 900;
  waiting[0].tenant_received = 900;
  waiting[1].tenant_received = 100;
  policy->Decide(running, waiting, kBudget, TimeNs{0}, decision);
  EXPECT_EQ(IdsOf(decision), (std::vector<uint64_t>{3, 2}));
}

TEST(FairPolicy, ShortPromptsOvertakeLongOnesUntilThoseHaveWaited) {
  const StepBudget budget = kBudget;
  const PolicyOptions options;
  const StepFacts facts{.budget = budget, .options = options, .now = TimeNs{0}};
  const RequestView longer = View(1, 4000, 0);
  RequestView shorter = View(2, 40, 0);
  EXPECT_LT(RankFair(shorter, facts), RankFair(longer, facts));
  // What comes later than the long one's handicap does not overtake it.
  const double handicap = 4 * (RemainingPromptNs(longer, facts) - RemainingPromptNs(shorter, facts));
  shorter.arrived_at = TimeNs{static_cast<int64_t>(handicap * 0.99)};
  EXPECT_LT(RankFair(shorter, facts), RankFair(longer, facts));
  shorter.arrived_at = TimeNs{static_cast<int64_t>(handicap * 1.01)};
  EXPECT_GT(RankFair(shorter, facts), RankFair(longer, facts));
}

/// One tenant has fifty requests waiting when another comes with one.
TEST(FairPolicy, AFloodDoesNotDelayTheOtherTenant) {
  std::vector<PolicyWorld::Spec> specs(50, {.at_ns = 0, .prompt = 300, .output = 10, .tenant = 1});
  specs.push_back({.at_ns = 1'000'000, .prompt = 100, .output = 10, .tenant = 2});
  const auto wait = [&](SchedulerPolicy& policy) {
    return PolicyWorld(policy, 4096, 512, 4).Run(specs).back().first_token_ns;
  };
  auto fair = NewFairPolicy({}), chunked = NewChunkedPolicy({});
  EXPECT_LT(wait(*fair), wait(*chunked) / 5);
}

}  // namespace
}  // namespace kvist::sched
