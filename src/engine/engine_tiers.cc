// Who waits, and for what: for others to compute a beginning, for tiers below hot memory, for room. When the engine
// looks at tiers.

#include <algorithm>
#include <optional>
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
      tiers_->EndHold(fetched.request);
      continue;
    }
    request->fetch.under_way = false;
    request->fetch.done = true;
    request->trace.restored_tokens += fetched.blocks * kv::kBlockTokens;
    request->trace.EndRestore(now);
    request->stale = true;
  }
  if (worked && in_flight_) {  // Else it is asked when the next step is planned.
    for (const auto& request : waiting_) {
      if (request->fetch.wanted) HeldByTier(*request, now);
    }
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
  request.stale = false;
}

/// What waiting requests would find cached changes: a few of them look again, in turn.
void Engine::LookAgain() {
  const size_t count = std::min(kLooks, waiting_.size());
  for (size_t i = 0; i < count; ++i) Look(*waiting_[look_next_++ % waiting_.size()]);
}

/// Whether a request that could begin waits on for blocks from below.
bool Engine::HeldByTier(Request& request, TimeNs now) {
  if (!tiers_ || !tiers_->HoldsBack(request, step_time_.cost(), now)) return false;
  request.trace.BeginRestore(now);
  return true;
}

/// Makes frames available that are held for those who wait, and are less urgent than this.
bool Engine::TakeHeldFrames(int urgency) {
  const std::optional<RequestId> holder = tiers_ ? tiers_->GiveUpHold(urgency) : std::nullopt;
  if (!holder) return false;
  if (Request* request = FindRequest(*holder)) {
    request->fetch.done = false;  // What it loses may be read again.
    request->stale = true;
  }
  return true;
}

/// Whether a waiting request may begin as far as others are concerned.
bool Engine::MayBegin(Request& request, TimeNs now) {
  const bool waits = WaitsForLeader(request);
  waits ? request.trace.BeginLeaderWait(request.leader, request.leader_tokens, now) : request.trace.EndLeaderWait(now);
  if (waits) {
    request.stale = true;
    if (!std::exchange(request.held_back, true)) ++work_.waited_for_prefix;
    return false;
  }
  if (request.stale) Look(request);
  return !OverQuota(request);
}

/// Fills the views of those who wait and may begin now.
/// @return frames that the policy may give away. REQUIRES: the running ones' views are of now.
uint32_t Engine::CollectWaiting(TimeNs now) {
  waiting_views_.clear();
  // What is being written is free soon: nobody is preempted for that.
  const auto count_free = [this] { return memory_.AvailableFrames() + memory_.counts().storing; };
  uint32_t free = count_free();
  uint32_t going_on = tiers_ ? FramesWanted() : 0;  // Of those who run, or were let in.
  while (going_on > free && TakeHeldFrames()) free = count_free();
  std::vector<const Request*> fetching;
  std::vector<Request*> ready;
  uint8_t most_urgent = UINT8_MAX;
  for (const auto& request : waiting_) {
    if (!MayBegin(*request, now)) {  // Others may have what is held for it.
      if (tiers_ && std::exchange(request->fetch.done, false)) tiers_->EndHold(request->id);
      continue;
    }
    if (request->fetch.under_way || (request->fetch.wanted && HeldByTier(*request, now))) {
      fetching.push_back(request.get());
      continue;
    }
    ready.push_back(request.get());
    most_urgent = std::min(most_urgent, request->input.priority);
    if (request->fetch.done) going_on += request->blocks_wanted();
  }
  uint32_t promised = 0;  // To those whom the policy does not see, unless somebody more urgent could begin.
  for (const Request* request : fetching) {
    if (request->input.priority <= most_urgent) promised += request->blocks_wanted();
  }
  if (!fetching.empty()) free = count_free();  // Some may have begun to be read.
  const auto left = [&] { return free - std::min(free, promised); };
  for (Request* request : ready) {
    while (request->blocks_wanted() > left() && TakeHeldFrames(request->input.priority)) free = count_free();
    // What is promised is there soon: a policy that sees nobody run would not wait for it.
    if (promised > 0 && !request->fetch.done && request->blocks_wanted() > left()) continue;
    waiting_views_.push_back(ViewOf(*request));
  }
  return std::max(std::min(free, going_on), left());
}

/// Those who were let in and have blocks below begin when these are there.
/// @return whether there are any: others may be let in in their place
bool Engine::FetchForAdmitted(TimeNs now) {
  if (!tiers_) return false;
  bool held = false;
  for (const sched::Advance& advance : decision_.advance) {
    Request& request = *FindRequest(advance.request);
    if (!request.has_memory) held |= HeldByTier(request, now);
  }
  return held;
}

TimeNs Engine::NextDeadline() const {
  const TimeNs turn = tiers_ ? tiers_->NextTurn(clock_.Now()) : kTimeNever;
  return std::min({memory_.NextExpiry(), turn, MetersTiers() ? holdings_due_ : kTimeNever});
}

}  // namespace kvist::engine
