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

/// What a tenant may see of it: its requests, the blocks that they hold, and cached text of its own namespace (not of
/// its salts').
std::string TenantMemoryBody(const engine::MemorySnapshot& snapshot, TenantId tenant, uint64_t cache_namespace);

/// Asks the engine and waits. Errors: Unavailable when it does not answer in time.
absl::StatusOr<engine::MemorySnapshot> AskForMemory(engine::Engine& engine);

}  // namespace kvist::serve
