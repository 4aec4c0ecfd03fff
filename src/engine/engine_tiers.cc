// Who waits, and for what: for others to compute a beginning, for tiers below hot memory, for room. When the engine
// looks at tiers.

#include <algorithm>
#include <utility>

#include "engine/engine.h"
#include "engine/engine_tier.h"

namespace kvist::engine {
namespace {

/// Figures of tiers are of so long ago at most.
constexpr int64_t kTierFiguresNs = 200'000'000;
/// So many waiting requests look again before each step.
constexpr size_t kLooks = 8;

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
    if (request == nullptr) {
      tiers_->TextIsGone(fetched.request);
      continue;
    }
    request->fetch.under_way = false;
    request->trace.restored_tokens += fetched.blocks * kv::kBlockTokens;
    request->trace.EndRestore(now);
    request->stale = true;
  }
  work_.tiers = tiers_->stats();
  if (worked || now >= tier_figures_due_) {
    tier_figures_due_ = now + kTierFiguresNs;
    work_.tier_figures = tiers_->Figures();
  }
  return worked;
}

/// Frames that running requests need for what is known of them, and one token more. REQUIRES: the views are of now.
uint32_t Engine::FramesWanted() const {
  uint64_t wanted = 0;
  for (const sched::RequestView& view : running_views_) {
    wanted += std::max(kv::BlocksFor(view.tokens_known + 1), view.blocks_held) - view.blocks_held;
  }
  return static_cast<uint32_t>(std::min<uint64_t>(wanted, UINT32_MAX));
}

void Engine::Look(Request& request) {
  const uint32_t usable = std::min(request.known() - 1, request.ReuseMax());  // One token is computed.
  request.seen = memory_.CachedBeginning(request.input.cache_namespace, std::span(request.tokens).first(usable),
                                         request.input.ops);
  // Frames that are held for it alone count as available.
  if (tiers_) request.seen.blocks_shared -= std::min(request.seen.blocks_shared, tiers_->FramesHeldFor(request.id));
  request.stale = false;
}

/// What waiting requests would find cached changes: a few of them look again, in turn.
void Engine::LookAgain() {
  const size_t count = std::min(kLooks, waiting_.size());
  for (size_t i = 0; i < count; ++i) Look(*waiting_[look_next_++ % waiting_.size()]);
}

/// Fills the views of those who wait and may begin now.
/// @return frames that the policy may give away. REQUIRES: the running ones' views are of now.
uint32_t Engine::CollectWaiting(TimeNs now) {
  waiting_views_.clear();
  LookAgain();
  // What is being written is free soon, and what is held for who waits is given up when others need it.
  const uint32_t free = memory_.AvailableFrames() + memory_.counts().storing + (tiers_ ? tiers_->FramesHeld() : 0);
  const uint32_t running = tiers_ ? FramesWanted() : 0;
  uint8_t most_urgent = UINT8_MAX;
  for (const auto& request : waiting_) most_urgent = std::min(most_urgent, request->input.priority);
  const auto less = [](uint64_t frames, uint64_t taken) {
    return static_cast<uint32_t>(frames - std::min(frames, taken));
  };
  std::vector<std::pair<uint8_t, uint32_t>> ahead;  // Priorities and frames of those that tiers bring something.
  uint64_t promised = 0;                            // To those of them that the policy does not see.
  for (const auto& request : waiting_) {
    const bool waits = WaitsForLeader(*request);
    waits ? request->trace.BeginLeaderWait(request->leader, request->leader_tokens, now)
          : request->trace.EndLeaderWait(now);
    if (waits) {
      request->stale = true;
      if (!std::exchange(request->held_back, true)) ++work_.waited_for_prefix;
      continue;
    }
    if (request->stale) Look(*request);
    if (OverQuota(*request)) continue;
    if (tiers_) {
      uint64_t before = running;
      for (const auto& [priority, frames] : ahead) before += priority <= request->input.priority ? frames : 0;
      const WaitingRoom room{.policy = less(free, promised), .fetch = less(free, before)};
      const bool held_back = tiers_->HoldsBack(*request, step_time_.cost(), room, now);
      if (held_back || tiers_->IsHeld(request->id)) {
        ahead.emplace_back(request->input.priority, request->blocks_wanted());
      }
      if (held_back) {
        request->trace.BeginRestore(now);
        if (request->input.priority == most_urgent) promised += request->blocks_wanted();
        continue;
      }
    }
    // What is promised is there soon: a policy that sees nobody run would not wait for it.
    if (promised > 0 && request->blocks_wanted() > less(free, promised)) continue;
    waiting_views_.push_back(ViewOf(*request));
  }
  return std::max(std::min(free, running), less(free, promised));  // Who runs goes on, whatever was promised.
}

TimeNs Engine::NextDeadline() const {
  const TimeNs turn = tiers_ ? tiers_->NextTurn(clock_.Now()) : kTimeNever;
  return std::min({memory_.NextExpiry(), turn, MetersTiers() ? holdings_due_ : kTimeNever});
}

}  // namespace kvist::engine
