#pragma once

/// @file
/// How long single steps of an executor take, over the steps that servers are in: what a profile of a machine is made
/// of (cost/profile.h). Drives step::Executor directly. Threads: one. Non-goals: speeds of whole texts (speed.h).

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "kv/kv_memory.h"
#include "step/executor.h"

namespace kvist::lab {

/// A step of one part of a prompt, of single tokens of some sequences, or of both.
struct MeasuredStep {
  uint32_t chunk = 0, before = 0;  ///< Tokens of the prompt, and of its context.
  uint32_t decodes = 0, view = 0;  ///< Sequences with a token each, and the tokens that each of them sees.
  double seconds = 0;              ///< By the executor's own measure, median of all rounds.
  double spread = 0;               ///< (slowest - fastest) / fastest, of the medians of the rounds.
};

/// The steps of a grid that servers are in, up to what the limits allow: prompts of 8 tokens and more after contexts up
/// to `context_max`, up to `decodes_max` single tokens, and both.
/// REQUIRES: a step may have two slices, and 8 tokens more than `decodes_max`; 32 tokens of context and a step fit.
std::vector<MeasuredStep> StepGrid(const step::ExecutorLimits& limits, uint32_t decodes_max, uint32_t context_max);

struct StepSpeedOptions {
  uint32_t rounds = 3;  ///< After one that is not counted; each measures all steps.
  /// Asked before every step; false ends it (Cancelled). `round` 0 is the one that is not counted.
  std::function<bool(uint32_t round)> progress;
};

/// Fills in times and spreads. Takes over the executor's wake function. Contexts are filled as for MeasureSpeed.
/// REQUIRES: no step in flight, memory without sequences. Errors: InvalidArgument when the tokens do not fit.
absl::Status MeasureSteps(step::Executor& executor, kv::KvMemory& memory, const Clock& clock,
                          const StepSpeedOptions& options, std::vector<MeasuredStep>& steps);

/// How steady measurements are: on a machine that does nothing else, rounds differ little.
struct Steadiness {
  double median_spread = 0, worst_spread = 0;
  size_t steps = 0;
  size_t unsteady = 0;  ///< Of these, those with a spread of more than kUnsteady.
};
inline constexpr double kUnsteady = 0.15;
/// REQUIRES: at least one step.
Steadiness SteadinessOf(std::span<const MeasuredStep> steps);

}  // namespace kvist::lab
