#pragma once

/// @file
/// A trace through memory and a drive without a model: which blocks are found where, and what is written to the drive,
/// under a policy of admission. Blocks are the trace's own (64 or 512 tokens); memory is an exact LRU; a block that is
/// found on the drive comes into memory. Requests run in order of arrival; nothing takes time. Threads: none shared.

#include <cstdint>

#include "kv/tier/admission.h"
#include "workload/trace.h"

namespace kvist::lab {

struct TierReplayOptions {
  uint64_t memory_blocks = 0;
  uint64_t drive_blocks = UINT64_MAX;  ///< Least recently used ones go.
  uint64_t block_bytes = 1;            ///< Told to the policy.
};

/// Blocks of all prompts together.
struct TierReplayResult {
  uint64_t requests = 0, asked = 0, distinct = 0;
  uint64_t memory_hits = 0, drive_hits = 0;
  uint64_t left_memory = 0;  ///< Blocks that the policy was asked about.
  uint64_t written = 0;
  double seconds = 0;  ///< Of the trace.
};

/// Errors: InvalidArgument when the trace has no contents.
absl::StatusOr<TierReplayResult> ReplayTiers(const workload::Trace& trace, const TierReplayOptions& options,
                                             kv::AdmissionPolicy& policy);

/// Writes what leaves memory if it is asked for again later: as much reuse as when everything is written, with the
/// fewest writes that this takes.
absl::StatusOr<TierReplayResult> ReplayClairvoyant(const workload::Trace& trace, const TierReplayOptions& options);

}  // namespace kvist::lab
