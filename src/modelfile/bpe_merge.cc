#include "modelfile/bpe_merge.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace kvist {

BpeMergeTable::BpeMergeTable(size_t count)
    : rules_(std::bit_ceil(2 * count + 2)),
      mask_(rules_.size() - 1),
      // 16 bits a rule: 6 % of the pairs that do not merge get past it; 512 KiB at most.
      filter_(std::bit_ceil(std::clamp<size_t>(count / 4, 2, 1 << 16))),
      filter_shift_(64 - std::countr_zero(filter_.size())) {}

void BpeMergeTable::Add(uint32_t left, uint32_t right, uint32_t rank) {
  KVIST_CHECK(left != UINT32_MAX && right != UINT32_MAX && rank != kNoMerge);
  const uint64_t hash = Hash(left, right);
  filter_[hash >> filter_shift_] |= uint64_t{1} << (hash & 63);
  size_t at = hash & mask_;
  while (rules_[at].left != UINT32_MAX) {
    if (rules_[at].left == left && rules_[at].right == right) return;
    at = (at + 1) & mask_;
  }
  rules_[at] = {left, right, rank};
}

void BpeQueue::Start(uint32_t positions_count) {
  KVIST_CHECK(late_.empty() && at_ == current_.size());
  current_.clear();
  at_ = 0;
  bin_ = positions_count <= kHeapPositionsMax ? kBins : -1;
}

bool BpeQueue::NextBin() {
  for (size_t word = 0; word < filled_.size(); ++word) {
    if (filled_[word] == 0) continue;
    const auto bit = static_cast<size_t>(std::countr_zero(filled_[word]));
    filled_[word] &= filled_[word] - 1;
    const size_t bin = word * 64 + bit;
    bin_ = static_cast<int32_t>(bin);
    current_.clear();
    at_ = 0;
    std::swap(current_, bins_[bin]);
    if (!std::is_sorted(current_.begin(), current_.end())) std::sort(current_.begin(), current_.end());
    return true;
  }
  return false;
}

}  // namespace kvist
