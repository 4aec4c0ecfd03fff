#include "kv/frame_pool.h"

#include <bit>
#include <mutex>
#include <utility>

#include "base/check.h"

namespace kvist::kv {

FramePool::FramePool(uint32_t frames_count, uint32_t buckets) : entries_(frames_count) {
  KVIST_CHECK(std::has_single_bit(buckets));
  while (buckets > 1 && frames_count / buckets < kBucketFramesMin) buckets /= 2;
  bucket_mask_ = buckets - 1;
  buckets_ = std::make_unique<Bucket[]>(buckets);
  for (uint32_t i = frames_count; i-- > 0;) PushFree(buckets_[i & bucket_mask_], i);
}

uint32_t FramePool::BucketOf(PageId id, uint32_t buckets) {
  // The article's hash: the highest bits of a product. In two steps, as one shift by 64 is undefined for one bucket.
  return static_cast<uint32_t>((id.value * 11400714819323198485u) >> 1 >> (63 - std::countr_zero(buckets)));
}

std::optional<FrameId> FramePool::Allocate(PageId id) {
  const uint32_t first = BucketOf(id, buckets_count());
  for (uint32_t i = 0; i <= bucket_mask_; ++i) {
    Bucket& bucket = buckets_[(first + i) & bucket_mask_];
    std::lock_guard lock(bucket.lock);
    const uint32_t index = bucket.free_head;
    if (index == kNil) continue;
    Entry& entry = entries_[index];
    bucket.free_head = entry.next;
    entry = {.references = 1, .state = FrameState::kReferenced};
    --bucket.counts.free;
    ++bucket.counts.referenced;
    return FrameId{index};
  }
  return std::nullopt;
}

std::optional<FrameId> FramePool::TakeOldest(PageId id) {
  const uint32_t first = BucketOf(id, buckets_count());
  for (const Retention retention : {Retention::kLow, Retention::kNormal, Retention::kHigh}) {
    const auto ring = static_cast<uint32_t>(retention);
    if (retention != Retention::kNormal && cached_of_[ring].load(std::memory_order_relaxed) == 0) continue;
    for (uint32_t i = 0; i <= bucket_mask_; ++i) {
      Bucket& bucket = buckets_[(first + i) & bucket_mask_];
      std::lock_guard lock(bucket.lock);
      const uint32_t index = bucket.rings[ring].oldest;
      if (index == kNil) continue;
      Unlink(bucket, index);
      entries_[index] = {.references = 1, .state = FrameState::kReferenced};
      --bucket.counts.cached;
      ++bucket.counts.referenced;
      return FrameId{index};
    }
  }
  return std::nullopt;
}

void FramePool::Reference(FrameId frame) {
  Bucket& bucket = HomeOf(frame);
  std::lock_guard lock(bucket.lock);
  Entry& entry = entries_[frame.value];
  KVIST_CHECK(entry.state != FrameState::kFree);
  if (entry.state == FrameState::kCached) {
    Unlink(bucket, frame.value);
    entry.state = FrameState::kReferenced;
    --bucket.counts.cached;
    ++bucket.counts.referenced;
  }
  ++entry.references;
}

void FramePool::Release(FrameId frame, bool keep) {
  Bucket& bucket = HomeOf(frame);
  std::lock_guard lock(bucket.lock);
  Entry& entry = entries_[frame.value];
  KVIST_CHECK(entry.state == FrameState::kReferenced && entry.references > 0);
  if (--entry.references > 0) return;
  --bucket.counts.referenced;
  if (!keep) return PushFree(bucket, frame.value);
  entry.state = FrameState::kCached;
  ++bucket.counts.cached;
  PushNewest(bucket, frame.value);
}

void FramePool::Forget(FrameId frame) {
  Bucket& bucket = HomeOf(frame);
  std::lock_guard lock(bucket.lock);
  KVIST_CHECK(entries_[frame.value].state == FrameState::kCached);
  Unlink(bucket, frame.value);
  --bucket.counts.cached;
  PushFree(bucket, frame.value);
}

void FramePool::SetRetention(FrameId frame, Retention retention) {
  Bucket& bucket = HomeOf(frame);
  std::lock_guard lock(bucket.lock);
  Entry& entry = entries_[frame.value];
  KVIST_CHECK(entry.state != FrameState::kFree);
  if (entry.state == FrameState::kCached) Unlink(bucket, frame.value);
  const bool lower = retention < std::exchange(entry.retention, retention);
  if (entry.state == FrameState::kCached) lower ? PushOldest(bucket, frame.value) : PushNewest(bucket, frame.value);
}

std::optional<FrameId> FramePool::OldestPinned() const {
  for (uint32_t i = 0; i <= bucket_mask_; ++i) {
    std::lock_guard lock(buckets_[i].lock);
    const uint32_t index = buckets_[i].rings[static_cast<uint32_t>(Retention::kPinned)].oldest;
    if (index != kNil) return FrameId{index};
  }
  return std::nullopt;
}

void FramePool::CountCached(Retention retention, int32_t change) {
  if (retention == Retention::kNormal) return;
  cached_of_[static_cast<uint32_t>(retention)].fetch_add(static_cast<uint32_t>(change), std::memory_order_relaxed);
}

void FramePool::Unlink(Bucket& bucket, uint32_t index) {
  Entry& entry = entries_[index];
  Ring& ring = bucket.rings[static_cast<uint32_t>(entry.retention)];
  CountCached(entry.retention, -1);
  (entry.previous == kNil ? ring.oldest : entries_[entry.previous].next) = entry.next;
  (entry.next == kNil ? ring.newest : entries_[entry.next].previous) = entry.previous;
  entry.previous = entry.next = kNil;
}

void FramePool::PushNewest(Bucket& bucket, uint32_t index) {
  Entry& entry = entries_[index];
  Ring& ring = bucket.rings[static_cast<uint32_t>(entry.retention)];
  CountCached(entry.retention, +1);
  entry.previous = ring.newest;
  entry.next = kNil;
  (ring.newest == kNil ? ring.oldest : entries_[ring.newest].next) = index;
  ring.newest = index;
}

void FramePool::PushOldest(Bucket& bucket, uint32_t index) {
  Entry& entry = entries_[index];
  Ring& ring = bucket.rings[static_cast<uint32_t>(entry.retention)];
  CountCached(entry.retention, +1);
  entry.previous = kNil;
  entry.next = ring.oldest;
  (ring.oldest == kNil ? ring.newest : entries_[ring.oldest].previous) = index;
  ring.oldest = index;
}

void FramePool::PushFree(Bucket& bucket, uint32_t index) {
  entries_[index] = {.next = bucket.free_head};
  bucket.free_head = index;
  ++bucket.counts.free;
}

FrameCounts FramePool::counts() const {
  FrameCounts sum;
  for (uint32_t i = 0; i <= bucket_mask_; ++i) {
    std::lock_guard lock(buckets_[i].lock);
    sum.free += buckets_[i].counts.free;
    sum.cached += buckets_[i].counts.cached;
    sum.referenced += buckets_[i].counts.referenced;
  }
  sum.pinned = cached_of_[static_cast<uint32_t>(Retention::kPinned)].load(std::memory_order_relaxed);
  return sum;
}

void FramePool::CheckInvariants() const {
  std::vector<FrameCounts> seen(buckets_count());
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    FrameCounts& counts = seen[i & bucket_mask_];
    const FrameState state = entries_[i].state;
    ++(state == FrameState::kFree ? counts.free : state == FrameState::kCached ? counts.cached : counts.referenced);
    KVIST_CHECK((state == FrameState::kReferenced) == (entries_[i].references > 0));
  }
  KVIST_CHECK(counts().total() == entries_.size());
  uint32_t of_class[kRetentions] = {};
  for (uint32_t b = 0; b <= bucket_mask_; ++b) {
    const Bucket& bucket = buckets_[b];
    KVIST_CHECK(seen[b].free == bucket.counts.free && seen[b].cached == bucket.counts.cached &&
                seen[b].referenced == bucket.counts.referenced);
    uint32_t linked = 0;
    for (uint32_t r = 0; r < kRetentions; ++r) {
      for (uint32_t i = bucket.rings[r].oldest; i != kNil; i = entries_[i].next, ++linked, ++of_class[r]) {
        KVIST_CHECK(entries_[i].state == FrameState::kCached && (i & bucket_mask_) == b && linked < entries_.size());
        KVIST_CHECK(static_cast<uint32_t>(entries_[i].retention) == r);
      }
    }
    KVIST_CHECK(linked == bucket.counts.cached);
    linked = 0;
    for (uint32_t i = bucket.free_head; i != kNil; i = entries_[i].next, ++linked) {
      KVIST_CHECK(entries_[i].state == FrameState::kFree && (i & bucket_mask_) == b && linked < entries_.size());
    }
    KVIST_CHECK(linked == bucket.counts.free);
  }
  for (uint32_t r = 0; r < kRetentions; ++r) {
    KVIST_CHECK(r == static_cast<uint32_t>(Retention::kNormal) || cached_of_[r].load() == of_class[r]);
  }
}

}  // namespace kvist::kv
