#pragma once

/// @file
/// What any executor of one tier refuses that runs one step at a time. Pure; any thread.

#include "absl/status/status.h"
#include "step/executor.h"

namespace kvist::step {

/// Errors: InvalidArgument, naming the number that is outside of the limits, or what is not supported.
absl::Status CheckLimits(const StepPlan& plan, const ExecutorLimits& limits);

}  // namespace kvist::step
