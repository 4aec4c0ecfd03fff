#pragma once

/// @file
/// The fixed set of frames of the hot tier, by number: who is free, who is referenced, who is only cached, and which
/// cached frame was used longest ago. Pure bookkeeping; the bytes belong to FrameArena, or to nobody on an emulated
/// device. Threads: engine thread only. Non-goals: contents, addresses.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.h"

namespace kvist::kv {

enum class FrameState : uint8_t { kFree, kCached, kReferenced };

/// How many frames are in each state; they add up to the pool.
struct FrameCounts {
  uint32_t free = 0, cached = 0, referenced = 0;
  uint32_t total() const { return free + cached + referenced; }
};

class FramePool {
 public:
  explicit FramePool(uint32_t frames_count);

  /// A free frame, now with one reference; nullopt when none is free (cached frames are not touched).
  std::optional<FrameId> Allocate();

  /// Adds a reference to a cached or referenced frame.
  void Reference(FrameId frame);

  /// Drops one reference. With the last one the frame becomes cached (most recently used) when `keep`, else free.
  /// @return true when the frame is now free.
  bool Release(FrameId frame, bool keep);

  /// The cached frame that was released longest ago.
  std::optional<FrameId> Oldest() const;

  /// Cached -> free.
  void Forget(FrameId frame);

  FrameState state(FrameId frame) const { return entries_[frame.value].state; }
  uint32_t references(FrameId frame) const { return entries_[frame.value].references; }
  const FrameCounts& counts() const { return counts_; }

  /// Walks everything and aborts unless states, lists and counts agree. O(frames); for tests and debug builds.
  void CheckInvariants() const;

 private:
  static constexpr uint32_t kNil = UINT32_MAX;
  struct Entry {
    uint32_t references = 0;
    uint32_t previous = kNil, next = kNil;  ///< Recency ring of cached frames; `next` also links the free list.
    FrameState state = FrameState::kFree;
  };

  void Unlink(uint32_t index);
  void PushNewest(uint32_t index);
  void PushFree(uint32_t index);

  std::vector<Entry> entries_;
  uint32_t free_head_ = kNil;
  uint32_t oldest_ = kNil, newest_ = kNil;
  FrameCounts counts_;
};

}  // namespace kvist::kv
