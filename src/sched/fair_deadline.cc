// The default: prompts in the order of fair, in chunks as deadline cuts them. A request with a deadline for its first
// token goes, among those of its tenant, no later than it must to keep it.

#include <algorithm>

#include "sched/composed_policy.h"

namespace kvist::sched {
namespace {

Rank RankFairInTime(const RequestView& view, const StepFacts& facts) {
  Rank rank = RankFair(view, facts);
  if (view.first_token_due == kTimeNever) return rank;
  const double latest_start = static_cast<double>(view.first_token_due.value) - RemainingPromptNs(view, facts);
  rank.second = std::min(rank.second, latest_start);
  return rank;
}

}  // namespace

std::unique_ptr<SchedulerPolicy> NewFairDeadlinePolicy(const PolicyOptions& options) {
  return NewComposedPolicy({.name = kDefaultPolicy, .overtake = true, .rank = RankFairInTime, .limit = LimitByDeadline},
                           options);
}

}  // namespace kvist::sched
