// The engine's part in how long blocks stay: wishes of requests that end, times that are over, pins that have to yield.

#include <algorithm>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/engine_tier.h"

namespace kvist::engine {

/// Classes and contents of cached blocks that end by themselves.
bool Engine::ExpireMemory() {
  if (memory_.NextExpiry() == kTimeNever) return false;
  const TimeNs now = clock_.Now();
  if (memory_.NextExpiry() > now) return false;
  memory_.Expire(now);
  return true;
}

/// @param may_pin  the request is over; else it will be back, and its frames are wanted by others until then
void Engine::EndMemory(Request& request, bool may_pin) {
  if (tiers_) tiers_->TextEnds(request, clock_.Now());
  const uint32_t quota = request.input.tenant_blocks_max;
  const kv::RetainOutcome outcome =
      memory_.End(request.id, {.retain = request.input.retain,
                               .now = clock_.Now(),
                               .may_pin = may_pin,
                               .owner = request.input.tenant,
                               // The other half is for requests, which could not run else.
                               .owner_pins_max = quota == 0 ? UINT32_MAX : quota / 2});
  request.has_memory = false;
  request.held_before_block_ns += outcome.held_block_ns;
  request.meter->kv_hot_block_ns = request.held_before_block_ns;
  request.usage.pinned_blocks = outcome.pinned_blocks;
  request.usage.not_pinned_blocks = outcome.not_pinned_blocks;
}

/// No request has frames to go on: those that the policy hoped for are pinned, or shared with others.
/// @return false when nobody waits for frames
bool Engine::GiveWay() {
  if (tiers_ && tiers_->moving()) return false;  // Frames are on their way.
  if (TakeHeldFrames()) return true;
  if (running_.size() > 1) {
    Preempt(*running_.back());
    return true;
  }
  // Nothing else would ever make room for who is alone: pins do.
  if (running_.empty()) return !waiting_views_.empty() && YieldPins(*FindRequest(waiting_views_.front().id));
  Request& last = *running_.back();
  if (YieldPins(last)) return true;
  if (last.output_count() > 0) {
    Finish(last.id, FinishReason::kLength);
    return true;
  }
  Finish(last.id, FinishReason::kError,
         absl::InvalidArgumentError(Cat("the view of ", memory_.LiveTokens(last.id), " tokens does not fit ",
                                        memory_.frames_count(), " blocks of ", kv::kBlockTokens,
                                        ": operations left too many blocks partly used")));
  return true;
}

/// Takes the pins off as many cached blocks as the rest of the known text needs.
bool Engine::YieldPins(const Request& request) {
  const uint32_t wanted = kv::BlocksFor(request.known());
  const uint32_t held = request.has_memory ? memory_.BlocksHeld(request.id) : request.blocks_spared;
  return memory_.YieldPins(std::max(wanted, held + 1) - held, clock_.Now()) > 0;
}

}  // namespace kvist::engine
