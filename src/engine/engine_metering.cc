// The engine's part in what tenants use and may use: meters brought up to date, quotas of KV memory kept.

#include "engine/engine.h"

namespace kvist::engine {
namespace {

/// Meters in memory that outlives the process are this old at most when it dies.
constexpr int64_t kMetersEveryNs = 1'000'000'000;

}  // namespace

void Engine::AdvanceMeters() {
  const TimeNs now = clock_.Now();
  memory_.Advance(now);
  if (now < meters_due_) return;
  meters_due_ = now + kMetersEveryNs;
  for (const auto& request : running_) {
    request->meter->kv_hot_block_ns = request->held_before_block_ns + memory_.HeldBlockNs(request->id);
  }
}

/// A tenant whose running requests have grown beyond its quota puts back the one that came last. One alone stays: its
/// output is bounded so that it fits.
void Engine::KeepQuotas() {
  holdings_.clear();
  for (const auto& request : running_) {
    if (request->input.tenant_blocks_max == 0) continue;
    Holding& holding = holdings_[request->input.tenant];
    ++holding.requests;
    holding.blocks += memory_.BlocksOwn(request->id);
  }
  if (holdings_.empty()) return;
  for (size_t i = running_.size(); i-- > 0;) {
    Request& request = *running_[i];
    if (request.input.tenant_blocks_max == 0) continue;
    Holding& holding = holdings_[request.input.tenant];
    if (holding.requests == 1 || holding.blocks <= request.input.tenant_blocks_max) continue;
    --holding.requests;
    holding.blocks -= memory_.BlocksOwn(request.id);
    Preempt(request);
  }
}

/// Whether a waiting request has to wait for others of its tenant to give blocks back, those included that may be let
/// in with this step. All of its text counts, though some of it may be cached.
bool Engine::OverQuota(const Request& request) {
  const uint32_t bound = request.input.tenant_blocks_max;
  if (bound == 0) return false;
  Holding& holding = holdings_[request.input.tenant];
  const uint32_t wanted = kv::BlocksFor(request.known()) - request.blocks_spared;
  if (holding.requests > 0 && holding.blocks + wanted > bound) return true;
  ++holding.requests;
  holding.blocks += wanted;
  return false;
}

}  // namespace kvist::engine
