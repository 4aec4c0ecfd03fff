#pragma once

/// @file
/// How long a step may take that background work has a part in beside others. Pure. Threads: any. Non-goals: its turns,
/// which it has whatever others wish (composed_policy.cc).

#include <span>

#include "base/clock.h"
#include "sched/policy.h"

namespace kvist::sched {

/// Nanoseconds, predicted, of the whole step; 0 = background work rests. What the next tokens of those who are not
/// background leave is up to the earliest instant that one of them is due. There is nothing to give where somebody has
/// wished for no such time (sooner is better, then), and while a prompt of theirs is read or waits: it would be read
/// more slowly.
/// @param running,waiting  as of SchedulerPolicy::Decide
double BackgroundStepNs(std::span<const RequestView> running, std::span<const RequestView> waiting,
                        const StepCost& cost, TimeNs now);

}  // namespace kvist::sched
