// Fair among tenants, and in each between long and short prompts. The tenant that has received least goes first
// (TenantShare). In it, a prompt goes by when it came plus a handicap: a multiple of the predicted time to read the
// rest of it. The rank of a waiting request does not change, so its wait is bounded: only who comes less than its
// handicap later can overtake it. Sources: ageing from waiting time and remaining prefill (P32); virtual counters
// (Sheng et al.).

#include "sched/composed_policy.h"

namespace kvist::sched {
namespace {

constexpr double kHandicap = 4;  // Times the time to read it: what a prompt lets others overtake.

}  // namespace

Rank RankFair(const RequestView& view, const StepFacts& facts) {
  return {static_cast<double>(view.tenant_received),
          static_cast<double>(view.arrived_at.value) + kHandicap * RemainingPromptNs(view, facts)};
}

std::unique_ptr<SchedulerPolicy> NewFairPolicy(const PolicyOptions& options) {
  return NewComposedPolicy({.name = "fair", .overtake = true, .rank = RankFair, .limit = LimitByChunk}, options);
}

}  // namespace kvist::sched
