// What is expected to end first goes first: the rest of the prompt and the predicted output, as time. A request goes by
// when it came plus a multiple of that time, so that in a burst short ones go first, and a long one is overtaken only
// by those that come less than its handicap later: its wait is bounded. Sources: P37 (ALISE), P11 (Clairvoyant).

#include <algorithm>

#include "sched/composed_policy.h"

namespace kvist::sched {
namespace {

constexpr double kHandicap = 8;          // Times its own time: what a request lets others overtake.
constexpr uint32_t kOutputTokens = 256;  // When nothing is known.

Rank RankByTime(const RequestView& view, const StepFacts& facts) {
  const uint32_t output = view.output_tokens_predicted != 0 ? view.output_tokens_predicted : kOutputTokens;
  const uint32_t left = output > view.output_tokens ? output - view.output_tokens : 1;
  StepWork token;
  token.Add(1, view.tokens_known, /*samples=*/true);
  // What one token costs beside those of others, so that the order does not depend on who runs.
  const double time = RemainingPromptNs(view, facts) + left * facts.budget.cost.Ns(token);
  return {static_cast<double>(view.arrived_at.value) + kHandicap * time, 0};
}

}  // namespace

std::unique_ptr<SchedulerPolicy> NewSjfPolicy(const PolicyOptions& options) {
  return NewComposedPolicy({.name = "sjf", .overtake = true, .rank = RankByTime, .limit = LimitByChunk}, options);
}

}  // namespace kvist::sched
