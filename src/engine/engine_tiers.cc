// The engine's part in tiers below hot memory: when it looks at them, who waits for them.

#include <algorithm>

#include "engine/engine.h"
#include "engine/engine_tier.h"

namespace kvist::engine {
namespace {

/// Figures of tiers are of so long ago at most.
constexpr int64_t kTierFiguresNs = 200'000'000;

}  // namespace

void Engine::SetColdBlocks(kv::ColdBlocks* cold, kv::AdmissionPolicy* admission, TierOptions options) {
  // A step takes all of its frames at once.
  options.ahead_min = std::max(options.ahead_min, kv::BlocksFor(executor_.Limits().tokens_per_step_max));
  tiers_ = std::make_unique<TierMover>(memory_, *cold, *admission, options);
  work_.tier_figures = tiers_->Figures();
  PublishStats();
}

void Engine::RefreshTiers() {
  if (tiers_) Call([this] { tier_figures_due_ = TimeNs{0}; });
}

bool Engine::TurnTiers() {
  if (!tiers_) return false;
  const TimeNs now = clock_.Now();
  const bool worked = tiers_->Turn(now);
  for (const Fetched& fetched : tiers_->TakeFetched()) {
    Request* request = FindRequest(fetched.request);
    if (request == nullptr) continue;
    request->fetch.under_way = false;
    request->trace.restored_tokens += fetched.blocks * kv::kBlockTokens;
    request->trace.EndRestore(now);
  }
  work_.tiers = tiers_->stats();
  if (worked || now >= tier_figures_due_) {
    tier_figures_due_ = now + kTierFiguresNs;
    work_.tier_figures = tiers_->Figures();
  }
  return worked;
}

/// Frames that are left when every running request has room for what is known of it, and one token more.
/// REQUIRES: the views are of now.
uint32_t Engine::FramesLeft() const {
  uint64_t wanted = 0;
  for (const sched::RequestView& view : running_views_) {
    wanted += std::max(kv::BlocksFor(view.tokens_known + 1), view.blocks_held) - view.blocks_held;
  }
  const uint32_t free = memory_.AvailableFrames() + memory_.counts().storing;
  return free - static_cast<uint32_t>(std::min<uint64_t>(wanted, free));
}

/// Whether a waiting request waits on for blocks from below.
bool Engine::HeldByTier(Request& request, uint32_t frames_left, TimeNs now) {
  if (!tiers_ || !tiers_->HoldsBack(request, step_time_.cost(), frames_left, now)) return false;
  request.trace.BeginRestore(now);
  return true;
}

TimeNs Engine::NextDeadline() const {
  const TimeNs turn = tiers_ ? tiers_->NextTurn(clock_.Now()) : kTimeNever;
  return std::min({memory_.NextExpiry(), turn, MetersTiers() ? holdings_due_ : kTimeNever});
}

}  // namespace kvist::engine
