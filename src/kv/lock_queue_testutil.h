#pragma once

/// @file
/// How long threads would wait for the locks of a frame pool on a machine with more cores than this one: a closed
/// queueing model. Each thread does something else for a while, then holds one bucket's lock; locks serve in order of
/// arrival, as TicketLock does. Both times are drawn from measured ones. Deterministic for a seed. Threads: none.
/// Non-goals: caches; what they cost is in the measured times.

#include <cstdint>
#include <functional>
#include <span>

#include "base/units.h"

namespace kvist::kv {

struct LockQueueModel {
  uint32_t threads = 1;
  uint32_t buckets = 1;              ///< Power of two.
  std::span<const double> think_ns;  ///< Between two operations of a thread.
  std::span<const double> hold_ns;   ///< Of a lock.
  /// The block of a thread's operation; FramePool's hash makes a bucket of it.
  std::function<PageId(uint32_t thread, uint64_t operation)> page;
};

struct LockQueueResult {
  double wait_ns = 0;  ///< Mean of all operations.
  double wait_p99_ns = 0;
  double operations_per_us = 0;  ///< Of all threads.
};

/// @param operations  of all threads together; the first tenth is not counted.
LockQueueResult SimulateLocks(const LockQueueModel& model, uint64_t operations, uint64_t seed);

}  // namespace kvist::kv
