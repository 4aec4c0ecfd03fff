#pragma once

/// @file
/// A trace through the KV memory without a model: which prompt tokens would have to be computed, and how far that is
/// from what is possible. Requests run one after the other in order of arrival; computing takes no time. Threads: none
/// shared. Non-goals: latencies (they need a device model).

#include <cstdint>

#include "workload/trace.h"

namespace kvist::lab {

struct CacheReplayOptions {
  uint32_t blocks = 0;   ///< Of the pool.
  uint32_t buckets = 0;  ///< Of the pool, a power of two; 1 = exact LRU under one lock.
};

/// Tokens of all prompts together.
struct CacheReplayResult {
  uint64_t requests = 0, refused = 0;  ///< Refused: longer than the whole pool; not in any other figure.
  uint64_t prompt_tokens = 0;
  uint64_t computed_tokens = 0;              ///< By KvMemory.
  uint64_t evicted_blocks = 0;               ///< By KvMemory.
  uint64_t infinite_computed_tokens = 0;     ///< With room for everything.
  uint64_t clairvoyant_computed_tokens = 0;  ///< With the same pool, and knowing which block is needed last.
  uint64_t distinct_blocks = 0;              ///< All that is ever cached: the working set.
  double empty_share =
      0;  ///< Slots of open blocks without a token, of the frames in use: mean over the requests' ends.
};

/// Errors: InvalidArgument when the trace has no contents.
absl::StatusOr<CacheReplayResult> ReplayCache(const workload::Trace& trace, const CacheReplayOptions& options);

}  // namespace kvist::lab
