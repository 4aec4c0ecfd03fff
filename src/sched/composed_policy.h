#pragma once

/// @file
/// What policies have in common, once: budgets, KV memory, preemption, priorities, and how large a chunk of a prompt
/// may be. A policy is a few rules that are put into it: an order among prompts, and a limit for what a step takes on.
/// Threads: as SchedulerPolicy.
///
/// Priorities are strict in every policy: a request goes before every less urgent one, and when there is no place or no
/// memory for it, the least urgent running ones are preempted (only ever for a more urgent request, so nobody is
/// preempted to and fro). Background work rests while anybody else is there, as rows of a batch make every step longer,
/// whoever else is in it; it has what the next tokens of others leave where these have deadlines (background.h), and
/// its turns. Among equals a waiting request is admitted when its whole known text fits beside what those that run
/// still need; when it does not, nobody who waits behind it overtakes it on account of being smaller.

#include <algorithm>
#include <compare>
#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>

#include "sched/policy.h"

namespace kvist::sched {

/// Place of a prompt in the order; smaller goes first, equal ones in order of admission or arrival.
struct Rank {
  double first = 0, second = 0;
  friend auto operator<=>(const Rank&, const Rank&) = default;
};

/// What the rules may look at beside the request itself.
struct StepFacts {
  const StepBudget& budget;
  const PolicyOptions& options;
  TimeNs now;
  uint32_t decodes = 0;                ///< Requests of the step that give their next token.
  double decode_ns = 0;                ///< Predicted for a step with the most urgent of these alone.
  TimeNs next_token_due = kTimeNever;  ///< The earliest of theirs.
};

/// Of one step.
struct StepLimit {
  uint32_t request_tokens = UINT32_MAX;  ///< Of one prompt.
  uint32_t step_tokens = UINT32_MAX;     ///< Of all prompts together.
  uint32_t prompts = UINT32_MAX;
  /// Predicted time of the whole step. Less urgent decodes are left out where they would exceed it. The first prompt
  /// goes on by a token all the same.
  double step_ns = std::numeric_limits<double>::infinity();
};

struct Rules {
  std::string_view name;
  bool prompts_first = false;  ///< Decodes get what prompts leave of the step, in place of the other way round.
  bool overtake = false;       ///< Who waits may go before prompts that are being read.
  Rank (*rank)(const RequestView& view, const StepFacts& facts) = nullptr;  ///< Absent: in order of arrival.
  StepLimit (*limit)(const StepFacts& facts) = nullptr;                     ///< Absent: none.
};

std::unique_ptr<SchedulerPolicy> NewComposedPolicy(const Rules& rules, const PolicyOptions& options);

/// Tokens of it that are known and have no place among its own: what memory counts.
inline uint32_t Missing(const RequestView& view) {
  return view.tokens_known - view.tokens_computed;
}
/// Those of them that somebody has to compute: what time counts.
inline uint32_t ToCompute(const RequestView& view) {
  return view.tokens_known - std::max(view.tokens_computed, view.tokens_cached);
}
/// Its step gives its next token, perhaps with some before it that were not sampled (drafts, what a grammar forces).
bool IsDecode(const RequestView& view);
/// What may be planned for so long a time, so that it is kept when the prediction errs as it does of late, twice over.
double WithoutErrors(double ns, const StepCost& cost);

// Rules that more than one policy has.

/// The tenant that received least, then who came first, with a handicap for what is left to read (fair.cc).
Rank RankFair(const RequestView& view, const StepFacts& facts);
/// Chunks as long as the next tokens of those that decode come in time (deadline.cc).
StepLimit LimitByDeadline(const StepFacts& facts);
/// One chunk a prompt (chunked.cc).
StepLimit LimitByChunk(const StepFacts& facts);

/// Predicted time to read what is missing of a prompt.
double RemainingPromptNs(const RequestView& view, const StepFacts& facts);

}  // namespace kvist::sched
