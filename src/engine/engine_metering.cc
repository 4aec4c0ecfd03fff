// The engine's part in what tenants use and may use: meters brought up to date, quotas of KV memory kept.

#include <algorithm>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/engine_tier.h"

namespace kvist::engine {
namespace {

/// Meters in memory that outlives the process are this old at most when it dies.
constexpr int64_t kMetersEveryNs = 1'000'000'000;
/// The book hears of tiers this often, also while nothing runs.
constexpr int64_t kHoldingsEveryNs = 10'000'000'000;

}  // namespace

void Engine::AdvanceMeters() {
  const TimeNs now = clock_.Now();
  memory_.Advance(now);
  if (tiers_) tiers_->Advance(now);
  if (MetersTiers() && now >= holdings_due_) TellHoldings(now);
  if (now < meters_due_) return;
  meters_due_ = now + kMetersEveryNs;
  for (const auto& request : running_) {
    request->meter->kv_hot_block_ns = request->held_before_block_ns + memory_.HeldBlockNs(request->id);
  }
}

/// Whether somebody is to hear of what tiers hold.
bool Engine::MetersTiers() const {
  return tiers_ != nullptr && book_ != nullptr && !tiers_->closed();
}

void Engine::TellHoldings(TimeNs now) {
  holdings_due_ = now + kHoldingsEveryNs;
  book_->TakeHoldings(tiers_->Holdings());
}

/// The end of what tiers do, which takes time of its own.
void Engine::CloseTiers() {
  if (tiers_ == nullptr || tiers_->closed()) return;
  const bool meters = MetersTiers();
  tiers_->Advance(clock_.Now());
  tiers_->Close(clock_);
  tiers_->Advance(clock_.Now());
  if (meters) TellHoldings(clock_.Now());
}

/// The request has room within its tenant's quota, for what its pins leave of it; bounds its output.
absl::Status Engine::CheckQuota(Request& request, uint32_t live) {
  const uint32_t bound = request.input.tenant_blocks_max, blocks = kv::BlocksFor(live);  // One may be shared in part.
  if (bound == 0) return absl::OkStatus();
  const uint32_t pinned = std::min(memory_.PinnedBlocks(request.input.tenant), bound);
  if (blocks >= bound - pinned) {
    return absl::ResourceExhaustedError(Cat("the prompt needs ", blocks, " blocks of KV memory and its answer more; ",
                                            pinned, " of the ", bound, " that the tenant may hold are pinned"));
  }
  request.output_max = std::min(request.output_max, (bound - pinned - blocks) * kv::kBlockTokens);
  return absl::OkStatus();
}

Engine::Holding& Engine::HoldingOf(TenantId tenant) {
  const auto [it, fresh] = holdings_.try_emplace(tenant);
  if (fresh) it->second.blocks = memory_.PinnedBlocks(tenant);
  return it->second;
}

/// A tenant whose running requests have grown beyond its quota puts back the one that came last. One alone stays: its
/// output is bounded so that it fits.
void Engine::KeepQuotas() {
  holdings_.clear();
  for (const auto& request : running_) {
    if (request->input.tenant_blocks_max == 0) continue;
    Holding& holding = HoldingOf(request->input.tenant);
    ++holding.requests;
    holding.blocks += memory_.BlocksOwn(request->id);
  }
  if (holdings_.empty()) return;
  for (size_t i = running_.size(); i-- > 0;) {
    Request& request = *running_[i];
    if (request.input.tenant_blocks_max == 0) continue;
    Holding& holding = HoldingOf(request.input.tenant);
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
  Holding& holding = HoldingOf(request.input.tenant);
  const uint32_t wanted = kv::BlocksFor(request.known()) - request.blocks_spared;
  if (holding.requests > 0 && holding.blocks + wanted > bound) return true;
  ++holding.requests;
  holding.blocks += wanted;
  return false;
}

}  // namespace kvist::engine
