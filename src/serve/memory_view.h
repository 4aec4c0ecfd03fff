#pragma once

/// @file
/// GET /kvist/memory: what lies in KV memory and for whom, as JSON. Threads: any; MemoryBody is pure.

#include <string>

#include <boost/json.hpp>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "serve/request_log.h"
#include "serve/tenants.h"

namespace kvist::serve {

/// Nodes of the prefix tree that are written out; more are counted only.
inline constexpr size_t kMemoryNodesMax = 10000;

/// `log` knows the names of requests.
std::string MemoryBody(const engine::MemorySnapshot& snapshot, const RequestLog& log, const Tenants& tenants);

/// {"total", "free", "cached", "pinned" (of the cached ones), "referenced"}
boost::json::object BlocksObject(const kv::FrameCounts& frames);
/// Hot memory and the tiers below it; what a block takes on each differs.
boost::json::array TiersArray(const engine::MemorySnapshot& snapshot);

/// What a tenant may see of it: its requests, the blocks that they hold, and cached text of its own namespace (not of
/// its salts').
std::string TenantMemoryBody(const engine::MemorySnapshot& snapshot, const RequestLog& log, const Tenants& tenants,
                             TenantId tenant, uint64_t cache_namespace);

/// Asks the engine and waits. Errors: Unavailable when it does not answer in time.
absl::StatusOr<engine::MemorySnapshot> AskForMemory(engine::Engine& engine, engine::SnapshotDetail detail);

}  // namespace kvist::serve
