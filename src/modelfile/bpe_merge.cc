#include "modelfile/bpe_merge.h"

namespace kvist {

void BpeQueue::Clear() {
  bucket_of_.clear();
  buckets_.clear();
  priorities_ = MinHeap();
  last_priority_ = kNoMerge;
}

void BpeQueue::Add(uint32_t priority, uint32_t position) {
  if (priority != last_priority_) {
    const auto [at, added] = bucket_of_.try_emplace(priority, static_cast<uint32_t>(buckets_.size()));
    if (added) buckets_.emplace_back();
    last_priority_ = priority;
    last_bucket_ = at->second;
  }
  Bucket& bucket = buckets_[last_bucket_];
  if (bucket.Empty()) {
    bucket.ordered.clear();
    bucket.taken = 0;
    priorities_.push(priority);
  }
  if (bucket.ordered.empty() || bucket.ordered.back() <= position) {
    bucket.ordered.push_back(position);
  } else {
    bucket.late.push(position);
  }
}

bool BpeQueue::Pop(uint32_t& priority, uint32_t& position) {
  if (priorities_.empty()) return false;
  priority = priorities_.top();
  Bucket& bucket = buckets_[priority == last_priority_ ? last_bucket_ : bucket_of_.find(priority)->second];
  const bool from_ordered = bucket.taken < bucket.ordered.size() &&
                            (bucket.late.empty() || bucket.ordered[bucket.taken] <= bucket.late.top());
  if (from_ordered) {
    position = bucket.ordered[bucket.taken++];
  } else {
    position = bucket.late.top();
    bucket.late.pop();
  }
  if (bucket.Empty()) priorities_.pop();
  return true;
}

}  // namespace kvist
