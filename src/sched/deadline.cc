// Deadlines of first and next tokens. Prompts go by the instant their first token is due; a request without a deadline
// counts as due some time after it came, so that it is overtaken for so long at most. A step takes as much of the
// prompts as its predicted time allows with the next tokens of all that decode in time, and of few prompts, so that
// they do not all end late together. Sources: predicted step time in place of a fixed token budget, and a bound on
// prompts under way (P32); earliest deadline first (Liu and Layland 1973).

#include <algorithm>

#include "sched/composed_policy.h"

namespace kvist::sched {
namespace {

constexpr int64_t kFirstTokenNs = 5'000'000'000;  // Without a deadline.
/// Without a deadline of tokens, a step with prompts may take so long (tokens come faster than people read), or so many
/// times as long as one without.
constexpr double kPatienceNs = 150e6;
constexpr double kStretch = 4;
/// Small chunks read prompts at a lower pace. When prompts had work for more than this share of the recent time, the
/// patience grows with the share: near capacity everybody is better off with large chunks.
constexpr double kBusyShare = 1.0 / 6;
/// Whatever tokens are wished for: prompts get a fifth of the time, or one client could keep all others from starting.
constexpr double kStretchMin = 1.25;

Rank RankByDeadline(const RequestView& view, const StepFacts& /*facts*/) {
  const TimeNs due = view.first_token_due != kTimeNever ? view.first_token_due : view.arrived_at + kFirstTokenNs;
  return {static_cast<double>(due.value), 0};
}

}  // namespace

StepLimit LimitByDeadline(const StepFacts& facts) {
  StepLimit limit{.step_tokens = facts.options.chunk_tokens_max, .prompts = facts.options.prefills_max};
  if (facts.decodes == 0) return limit;
  const double allowed =
      facts.next_token_due == kTimeNever
          ? std::max(kPatienceNs * std::max(1.0, facts.budget.busy_share / kBusyShare), kStretch * facts.decode_ns)
          : static_cast<double>(facts.next_token_due - facts.now);
  limit.step_ns = std::max(WithoutErrors(allowed, facts.budget.cost), kStretchMin * facts.decode_ns);
  return limit;
}

std::unique_ptr<SchedulerPolicy> NewDeadlinePolicy(const PolicyOptions& options) {
  return NewComposedPolicy({.name = "deadline", .overtake = true, .rank = RankByDeadline, .limit = LimitByDeadline},
                           options);
}

}  // namespace kvist::sched
