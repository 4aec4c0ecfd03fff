#include "kv/frame_pool.h"

#include "base/check.h"

namespace kvist::kv {

FramePool::FramePool(uint32_t frames_count) : entries_(frames_count) {
  for (uint32_t i = frames_count; i-- > 0;) PushFree(i);
}

std::optional<FrameId> FramePool::Allocate() {
  if (free_head_ == kNil) return std::nullopt;
  uint32_t index = free_head_;
  Entry& entry = entries_[index];
  free_head_ = entry.next;
  entry = {.references = 1, .state = FrameState::kReferenced};
  --counts_.free;
  ++counts_.referenced;
  return FrameId{index};
}

void FramePool::Reference(FrameId frame) {
  Entry& entry = entries_[frame.value];
  KVIST_CHECK(entry.state != FrameState::kFree);
  if (entry.state == FrameState::kCached) {
    Unlink(frame.value);
    entry.state = FrameState::kReferenced;
    --counts_.cached;
    ++counts_.referenced;
  }
  ++entry.references;
}

bool FramePool::Release(FrameId frame, bool keep) {
  Entry& entry = entries_[frame.value];
  KVIST_CHECK(entry.state == FrameState::kReferenced && entry.references > 0);
  if (--entry.references > 0) return false;
  --counts_.referenced;
  if (keep) {
    entry.state = FrameState::kCached;
    ++counts_.cached;
    PushNewest(frame.value);
    return false;
  }
  PushFree(frame.value);
  return true;
}

std::optional<FrameId> FramePool::Oldest() const {
  if (oldest_ == kNil) return std::nullopt;
  return FrameId{oldest_};
}

void FramePool::Forget(FrameId frame) {
  KVIST_CHECK(entries_[frame.value].state == FrameState::kCached);
  Unlink(frame.value);
  --counts_.cached;
  PushFree(frame.value);
}

void FramePool::Unlink(uint32_t index) {
  Entry& entry = entries_[index];
  (entry.previous == kNil ? oldest_ : entries_[entry.previous].next) = entry.next;
  (entry.next == kNil ? newest_ : entries_[entry.next].previous) = entry.previous;
  entry.previous = entry.next = kNil;
}

void FramePool::PushNewest(uint32_t index) {
  Entry& entry = entries_[index];
  entry.previous = newest_;
  entry.next = kNil;
  (newest_ == kNil ? oldest_ : entries_[newest_].next) = index;
  newest_ = index;
}

void FramePool::PushFree(uint32_t index) {
  entries_[index] = {.next = free_head_};
  free_head_ = index;
  ++counts_.free;
}

void FramePool::CheckInvariants() const {
  FrameCounts seen;
  for (const Entry& entry : entries_) {
    switch (entry.state) {
      case FrameState::kFree:
        ++seen.free;
        break;
      case FrameState::kCached:
        ++seen.cached;
        break;
      case FrameState::kReferenced:
        ++seen.referenced;
        break;
    }
    KVIST_CHECK((entry.state == FrameState::kReferenced) == (entry.references > 0));
  }
  KVIST_CHECK(seen.free == counts_.free && seen.cached == counts_.cached && seen.referenced == counts_.referenced);
  KVIST_CHECK(counts_.total() == entries_.size());
  uint32_t linked = 0;
  for (uint32_t i = oldest_; i != kNil; i = entries_[i].next, ++linked) {
    KVIST_CHECK(entries_[i].state == FrameState::kCached && linked < entries_.size());
  }
  KVIST_CHECK(linked == counts_.cached);
  linked = 0;
  for (uint32_t i = free_head_; i != kNil; i = entries_[i].next, ++linked) {
    KVIST_CHECK(entries_[i].state == FrameState::kFree && linked < entries_.size());
  }
  KVIST_CHECK(linked == counts_.free);
}

}  // namespace kvist::kv
