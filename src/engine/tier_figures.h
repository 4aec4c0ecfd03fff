#pragma once

/// @file
/// What the engine is told about tiers below hot memory, and what it counts of them. Plain data.

#include <cstdint>

namespace kvist::engine {

struct TierOptions {
  uint64_t frame_bytes = 0;
  double ahead_share = 1.0 / 16;    ///< Of the frames: so many are free or decided about before they are wanted,
  uint32_t ahead_min = 0;           ///< and not fewer than this.
  double loading_share = 1.0 / 2;   ///< Of the frames that loads under way may take; one alone may take more.
  double storing_share = 1.0 / 16;  ///< Of the frames that are being written at once,
  uint64_t storing_bytes_max = uint64_t{64} << 20;  ///< and not more than this.
  int64_t stop_ns = 10'000'000'000;                 ///< Given to writing what is cached when the engine stops.
};

/// Totals since the start.
struct TierStats {
  uint64_t fetches = 0;           ///< Texts whose beginning was asked for.
  uint64_t computed_instead = 0;  ///< Stored beginnings that are sooner computed than read.
  uint64_t fetched_blocks = 0;    ///< Asked for,
  uint64_t restored_blocks = 0;   ///< and put to use.
  uint64_t holds_given_up = 0;    ///< Texts that were read, and whose frames others needed before their requests began.
  int64_t fetch_ns = 0;           ///< Sum over fetches, from asking to having.
  uint64_t judged_blocks = 0;     ///< That were about to leave memory, or to be kept at the end, and were not stored.
  uint64_t admitted_blocks = 0;   ///< Written, swapped ones included.
  uint64_t swapped_blocks = 0;    ///< Written because a preempted request will be back for them.
};

}  // namespace kvist::engine
