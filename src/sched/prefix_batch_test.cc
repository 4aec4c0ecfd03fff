#include <gtest/gtest.h>

#include "sched/policy_testutil.h"

namespace kvist::sched {
namespace {

RequestView Of(uint64_t id, uint64_t group, uint32_t prompt, uint32_t output) {
  RequestView view = View(id, prompt, 0);
  view.prefix_group = group;
  view.output_tokens_predicted = output;
  return view;
}

TEST(PrefixBatchPolicy, GroupsStayTogetherAndLongAnswersGoFirst) {
  auto policy = NewPrefixBatchPolicy({});
  StepDecision decision;
  StepBudget budget = kBudget;
  budget.tokens_max = 1024;
  const std::vector<RequestView> waiting{Of(1, 1, 100, 10),  Of(2, 2, 100, 12), Of(3, 1, 100, 11),
                                         Of(4, 4, 100, 400), Of(5, 2, 100, 10), Of(6, 4, 100, 350)};
  policy->Decide({}, waiting, budget, TimeNs{0}, decision);
  EXPECT_EQ(IdsOf(decision), (std::vector<uint64_t>{4, 6, 1, 3, 2, 5}));
}

TEST(PrefixBatchPolicy, WhatCameTenMinutesEarlierIsNotOvertaken) {
  auto policy = NewPrefixBatchPolicy({});
  StepDecision decision;
  std::vector<RequestView> waiting{Of(1, 1, 60, 1), Of(2, 2, 60, 4000)};
  policy->Decide({}, waiting, kBudget, TimeNs{0}, decision);
  EXPECT_EQ(decision.advance.front().request, RequestId{2});
  waiting[1].arrived_at = TimeNs{601'000'000'000};
  policy->Decide({}, waiting, kBudget, TimeNs{0}, decision);
  EXPECT_EQ(decision.advance.front().request, RequestId{1});
}

}  // namespace
}  // namespace kvist::sched
