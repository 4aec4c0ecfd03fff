#pragma once

/// @file
/// Recorded requests through the engine on an emulated device (exec/emulated): when each had its tokens. In virtual
/// time the same inputs give the same bytes; in real time the device sleeps. Threads: none shared. Non-goals: HTTP
/// (bench-serve), several workers.

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/step_model.h"
#include "engine/engine.h"
#include "exec/emulated/emulated_executor.h"
#include "lab/load_stats.h"
#include "modelfile/tokenizer.h"
#include "sched/policy.h"
#include "workload/trace.h"

namespace kvist::lab {

struct DeviceReplayOptions {
  cost::StepModel model;
  std::string_view policy = "chunked";
  uint32_t tokens_per_step_max = 8192;  ///< And of one prompt in a step.
  uint32_t requests_max = 256;          ///< Running at once.
  uint32_t blocks = 0;                  ///< Of KV memory, 16 tokens each.
  bool reuse = true;
  bool plan_ahead = true;    ///< EmulatedOptions::plan_ahead; not in real time.
  uint32_t concurrency = 0;  ///< So many requests are always under way, whatever the trace's times; 0 = by its times.
  bool real_time = false;
};

struct DeviceReplayResult {
  std::vector<LoadRecord> records;  ///< In order of the trace; all times in seconds since its start.
  std::vector<double> queued_s;     ///< Of each: from its arrival until it was first part of a step's plan.
  double duration_s = 0;
  engine::EngineStats stats;
  exec::EmulatedTotals totals;
  uint64_t profile_asked = 0, profile_outside = 0;  ///< Of a profile: loads, and those beyond what was measured.
};

/// Requests of no input or output tokens count as one of each. Errors: InvalidArgument for an unknown policy, or memory
/// of less than two blocks.
absl::StatusOr<DeviceReplayResult> ReplayOnDevice(const Tokenizer& tokenizer, const workload::Trace& trace,
                                                  const DeviceReplayOptions& options);

}  // namespace kvist::lab
