#include "serve/memory_view.h"

#include <algorithm>

#include <boost/json.hpp>

#include "kv/page_layout.h"
#include "serve/engine_question.h"
#include "serve/json_output.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

json::array RequestsOf(const engine::MemorySnapshot& snapshot, const RequestLog& log, const Tenants& tenants) {
  json::array out;
  for (const engine::RequestMemory& request : snapshot.requests) {
    out.push_back({{"id", request.id.value},
                   {"request", log.NameOf(request.id)},
                   {"tenant", tenants.NameOf(request.tenant)},
                   {"state", request.running ? "running" : "waiting"},
                   {"tokens", request.tokens_known},
                   {"computed", request.tokens_computed},
                   {"cached", request.tokens_cached},
                   {"in_view", request.tokens_live},
                   {"own_blocks", request.blocks_own},
                   {"segments", request.segments},
                   {"age_s", request.age_s}});
  }
  return out;
}

double SecondsLeft(const engine::MemorySnapshot& snapshot, TimeNs until) {
  return Seconds(std::max<int64_t>(until - snapshot.now, 0));
}

/// Null for a node whose blocks nobody wished anything for.
json::value RetentionOf(const engine::MemorySnapshot& snapshot, const kv::CachedText& text) {
  if (text.strongest == kv::Retention::kNormal && text.forgotten_at == kTimeNever) return nullptr;
  json::object out = {{"class", kv::RetentionName(text.strongest)},
                      {"pinned_blocks", text.node.pinned},
                      {"high_blocks", text.node.high},
                      {"low_blocks", text.node.low}};
  if (text.until != kTimeNever) out["seconds_left"] = SecondsLeft(snapshot, text.until);
  if (text.forgotten_at != kTimeNever) out["forgotten_in_seconds"] = SecondsLeft(snapshot, text.forgotten_at);
  return out;
}

json::array NodesOf(const engine::MemorySnapshot& snapshot) {
  json::array out;
  for (const kv::CachedText& text : snapshot.nodes) {
    const kv::PrefixTree::NodeView& node = text.node;
    if (out.size() == kMemoryNodesMax) break;
    json::value parent;
    if (node.text_begin > 0) parent = node.parent.value;
    out.push_back({{"id", node.node.value},
                   {"parent", parent},
                   {"namespace", node.cache_namespace},
                   {"text_begin", node.text_begin},
                   {"tokens", node.tokens},
                   {"blocks", node.blocks},
                   {"holes", node.holes},
                   {"operations", node.ops},
                   {"sequences", node.anchors},
                   {"idle_s", node.used_at == TimeNs{0} ? json::value() : Seconds(snapshot.now - node.used_at)},
                   {"retention", RetentionOf(snapshot, text)}});
  }
  return out;
}

}  // namespace

std::string TenantMemoryBody(const engine::MemorySnapshot& snapshot, const RequestLog& log, const Tenants& tenants,
                             TenantId tenant, uint64_t cache_namespace) {
  engine::MemorySnapshot own{.now = snapshot.now};
  uint64_t blocks = 0;
  for (const engine::RequestMemory& request : snapshot.requests) {
    if (request.tenant != tenant) continue;
    own.requests.push_back(request);
    blocks += request.blocks_own;
  }
  for (const kv::CachedText& text : snapshot.nodes) {
    if (text.node.cache_namespace == cache_namespace) own.nodes.push_back(text);
  }
  return JsonText(json::object{{"object", "kvist.memory"},
                               {"block_tokens", kv::kBlockTokens},
                               {"own_blocks", blocks},
                               {"requests", RequestsOf(own, log, tenants)},
                               {"nodes_total", own.nodes.size()},
                               {"nodes", NodesOf(own)}});
}

json::object BlocksObject(const kv::FrameCounts& frames) {
  return {{"total", frames.total()},         {"free", frames.free},
          {"cached", frames.cached},         {"pinned", frames.pinned},
          {"referenced", frames.referenced}, {"loading", frames.loading},
          {"storing", frames.storing}};
}

json::array TiersArray(const engine::MemorySnapshot& snapshot) {
  json::array out = {{{"name", "hot"}, {"blocks", BlocksObject(snapshot.figures.frames)}}};
  for (const kv::TierFigures& tier : snapshot.tiers) {
    // A tier has a bound in bytes: as many blocks as there would be if all were as large as those that are there.
    const uint64_t block_bytes = tier.blocks == 0 ? 0 : tier.bytes / tier.blocks;
    json::value total, free;
    if (block_bytes > 0) {
      const uint64_t most = std::max(tier.bytes_max / block_bytes, tier.blocks);
      total = most;
      free = most - tier.blocks;
    }
    out.push_back({{"name", tier.name},
                   {"state", tier.state},
                   {"reason", tier.reason},
                   {"codec", tier.codec},
                   {"lossless", tier.lossless},
                   {"bytes", tier.bytes},
                   {"bytes_max", tier.bytes_max},
                   {"blocks",
                    {{"total", std::move(total)},
                     {"free", std::move(free)},
                     {"cached", tier.blocks},
                     {"pinned", 0},
                     {"referenced", 0},
                     {"loading", 0},
                     {"storing", 0}}},
                   {"since_start",
                    {{"lookup_blocks", tier.lookup_blocks},
                     {"hit_blocks", tier.hit_blocks},
                     {"read_blocks", tier.read_blocks},
                     {"read_bytes", tier.read_bytes},
                     {"missing_blocks", tier.missing_blocks},
                     {"stored_blocks", tier.stored_blocks},
                     {"stored_bytes", tier.stored_bytes},
                     {"refused_blocks", tier.refused_blocks},
                     {"evicted_blocks", tier.evicted_blocks},
                     {"forgotten_blocks", tier.forgotten_blocks},
                     {"faults", tier.faults},
                     {"drive_read_bytes", tier.drive_read_bytes},
                     {"drive_written_bytes", tier.drive_written_bytes}}}});
  }
  return out;
}

std::string MemoryBody(const engine::MemorySnapshot& snapshot, const RequestLog& log, const Tenants& tenants) {
  const kv::MemoryFigures& figures = snapshot.figures;
  const kv::FrameCounts& frames = figures.frames;
  const kv::KvMemoryStats& stats = figures.totals;
  const double slots = static_cast<double>(frames.referenced) * kv::kBlockTokens;
  const json::object body = {
      {"object", "kvist.memory"},
      {"block_tokens", kv::kBlockTokens},
      {"blocks", BlocksObject(frames)},
      {"tiers", TiersArray(snapshot)},
      {"retained_blocks",
       {{"low", figures.low}, {"high", figures.high}, {"pinned", figures.pinned}, {"pinned_max", figures.pins_max}}},
      {"empty_slots", figures.empty_slots},
      {"dropped_slots", figures.dropped_slots},
      {"empty_share", slots == 0 ? 0.0 : static_cast<double>(figures.empty_slots) / slots},
      {"since_start",
       {{"lookup_tokens", stats.lookup_tokens},
        {"hit_tokens", stats.hit_tokens},
        {"dropped_tokens", stats.dropped_tokens},
        {"evicted_blocks", stats.evicted_blocks},
        {"copied_blocks", stats.copied_blocks},
        {"forgotten_blocks", stats.forgotten_blocks},
        {"pins_refused", stats.pins_refused},
        {"pins_yielded", stats.pins_yielded},
        {"undecided_blocks", stats.undecided_blocks}}},
      {"requests", RequestsOf(snapshot, log, tenants)},
      {"nodes_total", snapshot.nodes.size()},
      {"nodes", NodesOf(snapshot)}};
  return JsonText(body);
}

absl::StatusOr<engine::MemorySnapshot> AskForMemory(engine::Engine& engine, engine::SnapshotDetail detail) {
  return AskEngine<engine::MemorySnapshot>([&](auto receive) { engine.Inspect(detail, std::move(receive)); });
}

}  // namespace kvist::serve
