#include <gtest/gtest.h>

#include <numeric>

#include "sched/policy_testutil.h"

namespace kvist::sched {
namespace {

TEST(SjfPolicy, WhatEndsFirstGoesFirst) {
  auto policy = NewSjfPolicy({});
  StepDecision decision;
  std::vector<RequestView> waiting{View(1, 30, 0), View(2, 30, 0), View(3, 200, 0)};
  waiting[0].output_tokens_predicted = 500;
  waiting[1].output_tokens_predicted = 10;
  waiting[2].output_tokens_predicted = 10;
  StepBudget budget = kBudget;
  budget.tokens_max = 512;
  policy->Decide({}, waiting, budget, TimeNs{0}, decision);
  EXPECT_EQ(IdsOf(decision), (std::vector<uint64_t>{2, 3, 1}));
  waiting[0].output_tokens = 495;  // Preempted near its end.
  policy->Decide({}, waiting, budget, TimeNs{0}, decision);
  EXPECT_EQ(IdsOf(decision), (std::vector<uint64_t>{1, 2, 3}));
}

/// One request at a time, as a serial backend: half of a burst is short.
TEST(SjfPolicy, ShortRequestsOfABurstDoNotWaitForLongOnes) {
  std::vector<PolicyWorld::Spec> specs;
  for (int i = 0; i < 100; ++i) {
    specs.push_back({.at_ns = 0, .prompt = 50, .output = i % 2 == 0 ? 400u : 20u});
  }
  const auto median_of_short = [&](SchedulerPolicy& policy) {
    const auto outcomes = PolicyWorld(policy, 4096, 512, /*requests_max=*/1).Run(specs);
    std::vector<int64_t> ends;
    for (size_t i = 1; i < outcomes.size(); i += 2) ends.push_back(outcomes[i].end_ns);
    std::ranges::sort(ends);
    return ends[ends.size() / 2];
  };
  auto sjf = NewSjfPolicy({}), fcfs = NewFcfsPolicy({});
  EXPECT_LT(median_of_short(*sjf), median_of_short(*fcfs) * 3 / 10);
}

}  // namespace
}  // namespace kvist::sched
