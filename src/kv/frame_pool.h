#pragma once

/// @file
/// The fixed set of frames of the hot tier, by number: who is free, who is referenced, who is only cached, and which
/// cached frame was used longest ago. Frames are dealt to 2^n buckets; each has its own lock, free list and recency
/// rings, and the logical id of a block chooses the bucket where its frame is looked for first (PB-LRU, "parallel
/// bucketed LRU", article A8: its hash is a multiplication by 2^64 / golden ratio). One bucket is an exact LRU under
/// one lock. Pure bookkeeping; the bytes belong to FrameArena, or to nobody on an emulated device. Threads: any.
/// Non-goals: contents, addresses.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/units.h"
#include "platform/ticket_lock.h"

namespace kvist::kv {

enum class FrameState : uint8_t {
  kFree,
  kCached,
  kReferenced,
  kLoading,  ///< Its bytes are on their way from a lower tier; whoever references it cannot read them yet.
  kStoring,  ///< Referenced by nobody, and being copied to a lower tier: nobody gets it before that is done.
};

/// In which order cached frames are given up: all of a class before any of the next one; pinned ones not at all.
enum class Retention : uint8_t { kLow, kNormal, kHigh, kPinned };
inline constexpr uint32_t kRetentions = 4;

/// How many frames are in each state; they add up to the pool.
struct FrameCounts {
  uint32_t free = 0, cached = 0, referenced = 0, loading = 0, storing = 0;
  uint32_t pinned = 0;        ///< Of those cached; nobody gets them.
  uint32_t loading_held = 0;  ///< Of those loading, referenced.
  uint32_t total() const { return free + cached + referenced + loading + storing; }
};

class FramePool {
 public:
  /// More buckets wait less for each other and forget less exactly (docs/performance.md, "KV memory").
  static constexpr uint32_t kDefaultBuckets = 64;
  /// A bucket of fewer frames would often be full while others are not.
  static constexpr uint32_t kBucketFramesMin = 64;

  /// @param buckets  power of two; halved until each has kBucketFramesMin frames.
  explicit FramePool(uint32_t frames_count, uint32_t buckets = kDefaultBuckets);

  /// A free frame, now with one reference; nullopt when none is free (cached frames are not touched).
  std::optional<FrameId> Allocate(PageId id);

  /// The cached frame of the lowest class that was released longest ago in the bucket of `id` (of another one where
  /// that has none), now with one reference: the caller gives it a new meaning or frees it. Never a pinned one.
  std::optional<FrameId> TakeOldest(PageId id) {
    return TakeOldest(id, [](FrameId) { return true; });
  }
  /// The same, of another bucket where that of `id` would give one that is not `ready` to go and the other one that is.
  template <class Ready>
  std::optional<FrameId> TakeOldest(PageId id, const Ready& ready);

  /// Adds a reference to a cached or referenced frame.
  void Reference(FrameId frame);

  /// Drops one reference. With the last one the frame becomes cached (most recently used of its class) when `keep`,
  /// else free.
  void Release(FrameId frame, bool keep);

  /// Cached -> free.
  void Forget(FrameId frame);

  /// Bytes come into a referenced frame from a lower tier, until EndTransfer. Nobody else may reference it meanwhile.
  void BeginLoading(FrameId frame);
  /// The bytes of a cached or referenced frame are read by a lower tier until EndTransfer; it may be used as before.
  void BeginStoring(FrameId frame);
  /// @param keep  as Release, for a frame that nobody references any more. One that was stored is the one of its class
  ///              used longest ago then: nothing is lost with it.
  void EndTransfer(FrameId frame, bool keep);
  bool InTransfer(FrameId frame) const { return entries_[frame.value].transfer != FrameState::kFree; }

  /// Appends cached frames, about `count` of those that would be given up next, pinned ones not, for which `wanted`
  /// is true.
  template <class Wanted>
  void AppendOldest(uint32_t count, const Wanted& wanted, std::vector<FrameId>& out) const;

  /// Class of a frame. A cached one becomes the most recently used of a higher class, the one used longest ago of a
  /// lower one. Allocate and TakeOldest give kNormal.
  void SetRetention(FrameId frame, Retention retention);

  /// The pinned frame that was released longest ago, in the first bucket that has one; nullopt when none is cached.
  std::optional<FrameId> OldestPinned() const;

  FrameState state(FrameId frame) const { return entries_[frame.value].state; }
  uint32_t references(FrameId frame) const { return entries_[frame.value].references; }
  Retention retention(FrameId frame) const { return entries_[frame.value].retention; }
  uint32_t buckets_count() const { return bucket_mask_ + 1; }
  /// Where the frame of a block is looked for first. @param buckets  power of two.
  static uint32_t BucketOf(PageId id, uint32_t buckets);
  /// Sum over the buckets; each is exact, together they are a snapshot only while nobody else works.
  FrameCounts counts() const;

  /// Walks everything and aborts unless states, lists and counts agree. O(frames); for tests. REQUIRES: nobody else
  /// works.
  void CheckInvariants() const;

 private:
  static constexpr uint32_t kNil = UINT32_MAX;
  struct Entry {
    uint32_t references = 0;
    uint32_t previous = kNil, next = kNil;  ///< Recency ring of cached frames; `next` also links the free list.
    FrameState state = FrameState::kFree;
    FrameState transfer = FrameState::kFree;  ///< kLoading, kStoring; kFree = none.
    Retention retention = Retention::kNormal;
  };
  struct Ring {
    uint32_t oldest = kNil, newest = kNil;
  };
  struct alignas(64) Bucket {
    mutable TicketLock lock;
    uint32_t free_head = kNil;
    Ring rings[kRetentions];
    FrameCounts counts;
  };

  Bucket& HomeOf(FrameId frame) { return buckets_[frame.value & bucket_mask_]; }
  void Unlink(Bucket& bucket, uint32_t index);
  void PushNewest(Bucket& bucket, uint32_t index);
  void PushOldest(Bucket& bucket, uint32_t index);
  void CountCached(Retention retention, int32_t change);
  void PushFree(Bucket& bucket, uint32_t index);
  static uint32_t& CountOf(Bucket& bucket, FrameState state);
  void SetState(Bucket& bucket, uint32_t index, FrameState state);
  void Settle(Bucket& bucket, uint32_t index, bool keep);
  template <class Ready>
  std::optional<FrameId> TakeOldestOf(Retention retention, uint32_t first, const Ready& ready);

  std::vector<Entry> entries_;
  std::unique_ptr<Bucket[]> buckets_;
  /// Cached frames of each class but kNormal: usually none, so that nobody looks for them in every bucket.
  std::atomic<uint32_t> cached_of_[kRetentions] = {};
  uint32_t bucket_mask_ = 0;  ///< Frame f belongs to bucket f & mask.
};

template <class Ready>
std::optional<FrameId> FramePool::TakeOldestOf(Retention retention, uint32_t first, const Ready& ready) {
  for (uint32_t i = 0; i <= bucket_mask_; ++i) {
    Bucket& bucket = buckets_[(first + i) & bucket_mask_];
    std::lock_guard lock(bucket.lock);
    const uint32_t index = bucket.rings[static_cast<uint32_t>(retention)].oldest;
    if (index == kNil || !ready(FrameId{index})) continue;
    Unlink(bucket, index);
    entries_[index] = {.references = 1, .state = FrameState::kReferenced};
    --bucket.counts.cached;
    ++bucket.counts.referenced;
    return FrameId{index};
  }
  return std::nullopt;
}

template <class Ready>
std::optional<FrameId> FramePool::TakeOldest(PageId id, const Ready& ready) {
  const uint32_t first = BucketOf(id, buckets_count());
  for (const Retention retention : {Retention::kLow, Retention::kNormal, Retention::kHigh}) {
    const std::atomic<uint32_t>& cached = cached_of_[static_cast<uint32_t>(retention)];
    if (retention != Retention::kNormal && cached.load(std::memory_order_relaxed) == 0) continue;
    if (const auto frame = TakeOldestOf(retention, first, ready)) return frame;
    if (const auto frame = TakeOldestOf(retention, first, [](FrameId) { return true; })) return frame;
  }
  return std::nullopt;
}

template <class Wanted>
void FramePool::AppendOldest(uint32_t count, const Wanted& wanted, std::vector<FrameId>& out) const {
  const uint32_t each = count / buckets_count() + 1;
  for (uint32_t b = 0; b <= bucket_mask_; ++b) {
    std::lock_guard lock(buckets_[b].lock);
    uint32_t seen = 0;
    for (const Retention retention : {Retention::kLow, Retention::kNormal, Retention::kHigh}) {
      uint32_t index = buckets_[b].rings[static_cast<uint32_t>(retention)].oldest;
      for (; index != kNil && seen < each; index = entries_[index].next, ++seen) {
        if (wanted(FrameId{index})) out.push_back(FrameId{index});
      }
    }
  }
}

}  // namespace kvist::kv
