#include <gtest/gtest.h>

#include "sched/policy_testutil.h"

namespace kvist::sched {
namespace {

TEST(FairDeadlinePolicy, IsTheDefault) {
  EXPECT_EQ(NewFairDeadlinePolicy({})->Name(), kDefaultPolicy);
}

TEST(FairDeadlinePolicy, ADeadlineLiftsARequestAmongThoseOfItsTenantOnly) {
  auto policy = NewFairDeadlinePolicy({.chunk_tokens_max = 64});
  StepDecision decision;
  std::vector<RequestView> waiting{View(1, 20, 0), View(2, 1200, 0), View(3, 20, 0)};
  waiting[2].tenant_received = 5;
  waiting[2].first_token_due = TimeNs{1};
  policy->Decide({}, waiting, kBudget, TimeNs{0}, decision);
  EXPECT_EQ(IdsOf(decision), (std::vector<uint64_t>{1, 2}));
  waiting[1].first_token_due = TimeNs{1'000'000};  // It had to begin long ago.
  policy->Decide({}, waiting, kBudget, TimeNs{0}, decision);
  EXPECT_EQ(IdsOf(decision), std::vector<uint64_t>{2});
}

TEST(FairDeadlinePolicy, ChunksKeepTokensComing) {
  const auto gap = [](SchedulerPolicy& policy) {
    std::vector<PolicyWorld::Spec> specs{{.at_ns = 0, .prompt = 16, .output = 600},
                                         {.at_ns = 50'000'000, .prompt = 4000, .output = 1}};
    return PolicyWorld(policy, 4096).Run(specs)[0].token_gap_max_ns;
  };
  auto chunked = NewChunkedPolicy({}), fair_deadline = NewFairDeadlinePolicy({});
  EXPECT_LE(gap(*fair_deadline), 150'000'000);
  EXPECT_GT(gap(*chunked), 250'000'000);
}

}  // namespace
}  // namespace kvist::sched
