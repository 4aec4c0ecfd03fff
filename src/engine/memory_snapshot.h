#pragma once

/// @file
/// What lies in KV memory at one moment and for whom: plain data, for people and for metrics.

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "kv/cold_blocks.h"
#include "kv/kv_memory.h"

namespace kvist::engine {

/// One request that has been admitted or waits.
struct RequestMemory {
  RequestId id;
  TenantId tenant;
  uint32_t tokens_known = 0, tokens_computed = 0;
  uint32_t tokens_prompt = 0, tokens_output = 0;
  uint32_t tokens_cached = 0;  ///< Of the prompt, found at admission.
  uint32_t tokens_live = 0;    ///< In the view.
  uint32_t blocks_own = 0;     ///< Written by this request.
  uint32_t segments = 0;       ///< Of its view.
  bool running = false;
  bool preempted = false;  ///< Waits to go on.
  double age_s = 0;
};

/// What is wanted of a snapshot: the tree of cached texts takes the longest.
enum class SnapshotDetail : uint8_t { kRequests, kWithNodes };

struct MemorySnapshot {
  kv::MemoryFigures figures;
  TimeNs now{0};
  std::vector<kv::CachedText> nodes;    ///< With kWithNodes only.
  std::vector<RequestMemory> requests;  ///< Running ones first.
  std::vector<kv::TierFigures> tiers;   ///< Below hot memory, fastest first.
};

}  // namespace kvist::engine
