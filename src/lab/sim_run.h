#pragma once

/// @file
/// Runs simulated worlds, each in a process of its own so that an abort or an endless loop is a finding like any other,
/// and makes the scenario of a failure as short as it can be. REQUIRES: one thread.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lab/world.h"

namespace kvist::lab {

struct SimRunOptions {
  Defect defect = Defect::kNone;
  unsigned real_seconds_max = 60;  ///< Of one world.
};

/// An abort of the product is a violation of "checks", a world that does not end one of "progress".
/// Errors: those of the system.
absl::StatusOr<WorldResult> RunApart(const SimScenario& scenario, const SimRunOptions& options);

/// A scenario that breaks the same promise with fewer workers, clients and faults in less time, as far as single
/// changes lead there. Its result comes with it. @param runs_max  worlds that may be tried
struct Shrunk {
  SimScenario scenario;
  WorldResult result;
  uint32_t runs = 0;
};
/// REQUIRES: `result` is what RunApart says of `scenario`, and not ok().
absl::StatusOr<Shrunk> Shrink(const SimScenario& scenario, const WorldResult& result, const SimRunOptions& options,
                              uint32_t runs_max = 300);

}  // namespace kvist::lab
