// Whole prompts in order of arrival, before anything else: a step is filled with them, and decodes wait until none is
// left. What servers did before prompts were cut into chunks; the time between two tokens has no bound.

#include "sched/composed_policy.h"

namespace kvist::sched {

std::unique_ptr<SchedulerPolicy> NewFcfsPolicy(const PolicyOptions& options) {
  return NewComposedPolicy({.name = "fcfs", .prompts_first = true}, options);
}

}  // namespace kvist::sched
