#pragma once

/// @file
/// Frames that hold single pages of split blocks. Such a frame is carved as a block is, [layer][lane], so that the
/// pages of a block that is split can stay where they are; a slot takes any page of its size. Sizes are those of the
/// layout's lanes: one, or two where keys and values take different bytes. Pure bookkeeping. Threads: engine thread
/// only. Non-goals: taking frames from the pool, contents.

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/units.h"
#include "kv/page_layout.h"

namespace kvist::kv {

/// A place for one page.
struct PageSlot {
  FrameId frame;
  uint16_t slot = 0;  ///< A page number: the slot is where a block has that page.
  friend auto operator<=>(const PageSlot&, const PageSlot&) = default;
};

class PageSlots {
 public:
  /// REQUIRES: a block has fewer than 2^16 pages.
  explicit PageSlots(const PageLayout& layout);

  /// A frame to be carved. @param in_use  every slot of it is in use, else none.
  void AddFrame(FrameId frame, bool in_use);
  /// Frames that have to be added before pages of these numbers can be placed.
  uint32_t FramesNeeded(std::span<const uint32_t> pages) const;
  /// A slot for a page: of the lowest frame that has one. REQUIRES: there is one.
  PageSlot Take(uint32_t page);
  /// @return the frame of the slot, when nothing is in use in it any more; it is no longer one of these.
  std::optional<FrameId> Free(PageSlot slot);

  uint32_t frames_count() const { return static_cast<uint32_t>(in_use_.size()); }
  /// Every frame, and how many of its slots are in use (at least one but for those just added).
  const absl::flat_hash_map<FrameId, uint32_t>& frames() const { return in_use_; }
  bool IsFree(PageSlot slot) const { return free_[ClassOf(slot.slot)].contains(slot); }

 private:
  uint32_t ClassOf(uint32_t page) const { return class_of_lane_[page % class_of_lane_.size()]; }

  uint32_t pages_ = 0;
  std::vector<uint32_t> class_of_lane_;
  std::vector<uint32_t> slots_of_class_;           ///< Of one frame.
  std::vector<std::set<PageSlot>> free_;           ///< By class.
  absl::flat_hash_map<FrameId, uint32_t> in_use_;  ///< Slots.
};

}  // namespace kvist::kv
