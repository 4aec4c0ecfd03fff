#pragma once

/// @file
/// GET /kvist/memory: what lies in KV memory and for whom, as JSON. Threads: any; MemoryBody is pure.

#include <string>

#include "absl/status/statusor.h"
#include "engine/engine.h"

namespace kvist::serve {

/// Nodes of the prefix tree that are written out; more are counted only.
inline constexpr size_t kMemoryNodesMax = 10000;

std::string MemoryBody(const engine::MemorySnapshot& snapshot);

/// Asks the engine and waits. Errors: Unavailable when it does not answer in time.
absl::StatusOr<engine::MemorySnapshot> AskForMemory(engine::Engine& engine);

}  // namespace kvist::serve
