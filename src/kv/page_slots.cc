#include "kv/page_slots.h"

#include <algorithm>

#include "base/check.h"

namespace kvist::kv {

PageSlots::PageSlots(const PageLayout& layout) : pages_(layout.pages()) {
  KVIST_CHECK(pages_ < (1u << 16));
  std::vector<uint32_t> sizes;
  for (const Lane& lane : layout.lanes()) {
    const auto it = std::ranges::find(sizes, lane.page_bytes);
    class_of_lane_.push_back(static_cast<uint32_t>(it - sizes.begin()));
    if (it == sizes.end()) sizes.push_back(lane.page_bytes);
  }
  free_.resize(sizes.size());
  slots_of_class_.resize(sizes.size());
  for (const uint32_t of : class_of_lane_) slots_of_class_[of] += layout.layers();
}

void PageSlots::AddFrame(FrameId frame, bool in_use) {
  KVIST_CHECK(in_use_.try_emplace(frame, in_use ? pages_ : 0).second);
  if (in_use) return;
  for (uint32_t page = 0; page < pages_; ++page) free_[ClassOf(page)].insert({frame, static_cast<uint16_t>(page)});
}

uint32_t PageSlots::FramesNeeded(std::span<const uint32_t> pages) const {
  std::vector<size_t> wanted(free_.size());
  for (const uint32_t page : pages) ++wanted[ClassOf(page)];
  size_t frames = 0;
  for (size_t i = 0; i < free_.size(); ++i) {
    const size_t lacking = wanted[i] - std::min(wanted[i], free_[i].size());
    frames = std::max(frames, (lacking + slots_of_class_[i] - 1) / slots_of_class_[i]);
  }
  return static_cast<uint32_t>(frames);
}

PageSlot PageSlots::Take(uint32_t page) {
  std::set<PageSlot>& free = free_[ClassOf(page)];
  KVIST_CHECK(!free.empty());
  const PageSlot slot = *free.begin();
  free.erase(free.begin());
  ++in_use_.at(slot.frame);
  return slot;
}

std::optional<FrameId> PageSlots::Free(PageSlot slot) {
  KVIST_CHECK(free_[ClassOf(slot.slot)].insert(slot).second);
  uint32_t& in_use = in_use_.at(slot.frame);
  if (--in_use > 0) return std::nullopt;
  in_use_.erase(slot.frame);
  for (std::set<PageSlot>& free : free_) {
    free.erase(free.lower_bound({slot.frame, 0}), free.upper_bound({slot.frame, UINT16_MAX}));
  }
  return slot.frame;
}

}  // namespace kvist::kv
