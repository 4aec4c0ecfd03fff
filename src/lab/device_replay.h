#pragma once

/// @file
/// Recorded requests through the engine on an emulated device (exec/emulated): when each had its tokens. In virtual
/// time the same inputs give the same bytes; in real time the device sleeps. A cluster is several independent replicas
/// behind a router that knows how many requests each has under way. Threads: none shared. Non-goals: HTTP
/// (bench-serve), workers that fail or share caches (world.h).

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/step_model.h"
#include "engine/engine.h"
#include "exec/emulated/emulated_executor.h"
#include "lab/host_tier.h"
#include "lab/load_stats.h"
#include "modelfile/tokenizer.h"
#include "sched/policy.h"
#include "workload/trace.h"

namespace kvist::lab {

/// Which replica a request goes to: each in turn, or the one with the fewest under way, of these the first.
enum class Routing : uint8_t { kRoundRobin, kLeastLoaded };

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
  uint32_t replicas =
      1;  ///< Of the model, each on devices of its own; more than one only in virtual time, by the trace.
  Routing routing = Routing::kLeastLoaded;
  std::optional<HostTierOptions> host;  ///< Memory below each replica's; only in virtual time.
};

/// Every request `copies` times, as from so many independent crowds: each copy is shifted by another part of the
/// trace's span, and goes round its end. In order of time.
workload::Trace CopiesOf(const workload::Trace& trace, uint32_t copies);

/// What memory of the host was good for.
struct HostFigures {
  uint64_t restores = 0, restored_blocks = 0;  ///< Beginnings of prompts that came back, and their blocks.
  int64_t restore_ns = 0;                      ///< From asking to having them, in all.
  uint64_t computed_instead = 0;               ///< Stored beginnings that were sooner computed.
  uint64_t evicted_blocks = 0;
  cost::LinkUse to_host, to_device;
  HostFigures& operator+=(const HostFigures& other);
};

struct DeviceReplayResult {
  std::vector<LoadRecord> records;  ///< In order of the trace; all times in seconds since its start.
  std::vector<double> queued_s;     ///< Of each: from its arrival until it was first part of a step's plan.
  std::vector<uint32_t> replica;    ///< Of each: where it ran.
  double duration_s = 0;
  engine::EngineStats stats;     ///< Of the first replica.
  exec::EmulatedTotals totals;   ///< Of all replicas.
  uint64_t preemptions = 0;      ///< The same.
  std::vector<double> busy_s;    ///< Of each replica.
  HostFigures host;              ///< The same, of memory below.
  cost::ProfileUse profile_use;  ///< Of all replicas.
};

/// Requests of no input or output tokens count as one of each. Errors: InvalidArgument for an unknown policy, memory of
/// less than two blocks, replicas in a closed loop or in real time, or memory of a host in real time.
absl::StatusOr<DeviceReplayResult> ReplayOnDevice(const Tokenizer& tokenizer, const workload::Trace& trace,
                                                  const DeviceReplayOptions& options);

}  // namespace kvist::lab
