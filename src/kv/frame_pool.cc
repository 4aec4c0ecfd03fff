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

uint32_t& FramePool::CountOf(Bucket& bucket, FrameState state) {
  switch (state) {
    case FrameState::kFree:
      return bucket.counts.free;
    case FrameState::kCached:
      return bucket.counts.cached;
    case FrameState::kLoading:
      return bucket.counts.loading;
    case FrameState::kStoring:
      return bucket.counts.storing;
    case FrameState::kReferenced:
      break;
  }
  return bucket.counts.referenced;
}

void FramePool::SetState(Bucket& bucket, uint32_t index, FrameState state) {
  Entry& entry = entries_[index];
  if (entry.state == state) return;
  if (entry.state == FrameState::kCached) Unlink(bucket, index);
  --CountOf(bucket, entry.state);
  if (state == FrameState::kFree) return PushFree(bucket, index);
  entry.state = state;
  ++CountOf(bucket, state);
  if (state == FrameState::kCached) PushNewest(bucket, index);
}

/// The state of a frame that nobody references.
void FramePool::Settle(Bucket& bucket, uint32_t index, bool keep) {
  const FrameState transfer = entries_[index].transfer;
  SetState(bucket, index, transfer != FrameState::kFree ? transfer : keep ? FrameState::kCached : FrameState::kFree);
}

void FramePool::Reference(FrameId frame) {
  Bucket& bucket = HomeOf(frame);
  std::lock_guard lock(bucket.lock);
  Entry& entry = entries_[frame.value];
  KVIST_CHECK(entry.state != FrameState::kFree && entry.state != FrameState::kLoading);
  SetState(bucket, frame.value, FrameState::kReferenced);
  ++entry.references;
}

void FramePool::Release(FrameId frame, bool keep) {
  Bucket& bucket = HomeOf(frame);
  std::lock_guard lock(bucket.lock);
  Entry& entry = entries_[frame.value];
  KVIST_CHECK(entry.references > 0);
  if (--entry.references > 0) return;
  if (entry.state == FrameState::kLoading) --bucket.counts.loading_held;
  Settle(bucket, frame.value, keep);
}

void FramePool::Forget(FrameId frame) {
  Bucket& bucket = HomeOf(frame);
  std::lock_guard lock(bucket.lock);
  KVIST_CHECK(entries_[frame.value].state == FrameState::kCached);
  SetState(bucket, frame.value, FrameState::kFree);
}

void FramePool::BeginLoading(FrameId frame) {
  Bucket& bucket = HomeOf(frame);
  std::lock_guard lock(bucket.lock);
  Entry& entry = entries_[frame.value];
  KVIST_CHECK(entry.state == FrameState::kReferenced && entry.references == 1 && !InTransfer(frame));
  entry.transfer = FrameState::kLoading;
  SetState(bucket, frame.value, FrameState::kLoading);
  ++bucket.counts.loading_held;
}

void FramePool::BeginStoring(FrameId frame) {
  Bucket& bucket = HomeOf(frame);
  std::lock_guard lock(bucket.lock);
  Entry& entry = entries_[frame.value];
  KVIST_CHECK((entry.state == FrameState::kReferenced || entry.state == FrameState::kCached) && !InTransfer(frame));
  entry.transfer = FrameState::kStoring;
  if (entry.references == 0) SetState(bucket, frame.value, FrameState::kStoring);
}

void FramePool::EndTransfer(FrameId frame, bool keep) {
  Bucket& bucket = HomeOf(frame);
  std::lock_guard lock(bucket.lock);
  Entry& entry = entries_[frame.value];
  KVIST_CHECK(InTransfer(frame));
  entry.transfer = FrameState::kFree;
  if (entry.references == 0) {
    const bool stored = entry.state == FrameState::kStoring && keep;
    Settle(bucket, frame.value, keep);
    if (!stored) return;
    Unlink(bucket, frame.value);  // Nobody has used it: it goes where it was.
    PushOldest(bucket, frame.value);
    return;
  }
  if (entry.state == FrameState::kLoading) --bucket.counts.loading_held;
  SetState(bucket, frame.value, FrameState::kReferenced);
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
    sum.loading += buckets_[i].counts.loading;
    sum.storing += buckets_[i].counts.storing;
    sum.loading_held += buckets_[i].counts.loading_held;
  }
  sum.pinned = cached_of_[static_cast<uint32_t>(Retention::kPinned)].load(std::memory_order_relaxed);
  return sum;
}

void FramePool::CheckInvariants() const {
  std::vector<FrameCounts> seen(buckets_count());
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    FrameCounts& counts = seen[i & bucket_mask_];
    const Entry& entry = entries_[i];
    switch (entry.state) {
      case FrameState::kFree:
        ++counts.free;
        break;
      case FrameState::kCached:
        ++counts.cached;
        break;
      case FrameState::kReferenced:
        ++counts.referenced;
        break;
      case FrameState::kLoading:
        ++counts.loading;
        counts.loading_held += entry.references > 0 ? 1 : 0;
        break;
      case FrameState::kStoring:
        ++counts.storing;
        break;
    }
    const bool loading = entry.state == FrameState::kLoading;
    KVIST_CHECK(loading || (entry.state == FrameState::kReferenced) == (entry.references > 0));
    KVIST_CHECK(loading == (entry.transfer == FrameState::kLoading));
    KVIST_CHECK(entry.transfer != FrameState::kStoring || entry.state == FrameState::kStoring || entry.references > 0);
    KVIST_CHECK(entry.state != FrameState::kStoring || entry.transfer == FrameState::kStoring);
  }
  KVIST_CHECK(counts().total() == entries_.size());
  uint32_t of_class[kRetentions] = {};
  for (uint32_t b = 0; b <= bucket_mask_; ++b) {
    const Bucket& bucket = buckets_[b];
    KVIST_CHECK(seen[b].free == bucket.counts.free && seen[b].cached == bucket.counts.cached &&
                seen[b].referenced == bucket.counts.referenced && seen[b].loading == bucket.counts.loading &&
                seen[b].storing == bucket.counts.storing && seen[b].loading_held == bucket.counts.loading_held);
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
