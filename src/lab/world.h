#pragma once

/// @file
/// A simulated world under one seed: workers that run the real engine, KV memory, scheduling and block store, a router,
/// clients, a network, drives and clocks, all on virtual time and one thread, with faults that come as a scenario says.
/// Checkers watch what must always hold (docs/simulation.md). The same scenario gives the same run, byte for byte.
/// Non-goals: how long things take on real machines.

#include <cstdint>
#include <string>
#include <vector>

#include "lab/sim_scenario.h"
#include "lab/world_client.h"
#include "lab/world_defect.h"
#include "lab/world_log.h"
#include "lab/world_worker.h"

namespace kvist::lab {

struct WorldResult {
  Violation violation;  ///< checker "" = none.
  bool ok() const { return violation.checker.empty(); }
  std::vector<std::string> last_lines;  ///< What happened last.
  uint64_t digest = 0;                  ///< Of everything that happened.
  double seconds = 0;                   ///< Virtual.
  ClientTotals clients;
  WorkerTotals workers;
};

/// REQUIRES: the scenario's policy is known. Promises that the product checks by itself abort: see sim_run.h.
WorldResult RunWorld(const SimScenario& scenario, Defect defect = Defect::kNone);

}  // namespace kvist::lab
