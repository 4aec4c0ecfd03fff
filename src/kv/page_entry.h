#pragma once

/// @file
/// What the table of addresses says about one block, or about one page of a block that was split: where its bytes lie
/// in hot memory, where a copy lies on a lower tier, how they are written and what may be done with them. 16 bytes, so
/// that a block of all layers and lanes costs one entry. Plain data. Non-goals: references, recency.

#include <cstdint>
#include <string>

#include "base/units.h"
#include "tensor/kv_type.h"

namespace kvist::kv {

/// A block without a frame.
inline constexpr FrameId kNoFrame{UINT32_MAX};

/// Frame ids with this bit name tables of pages of split blocks; they stand where a frame would, for whoever counts
/// references to blocks.
inline constexpr uint32_t kPageTableBit = 1u << 31;
constexpr bool IsPageTable(FrameId frame) {
  return frame != kNoFrame && (frame.value & kPageTableBit) != 0;
}

enum class PageState : uint8_t {
  kNone,       ///< Not in hot memory; perhaps on a lower tier.
  kOpen,       ///< Being written by one sequence.
  kSealed,     ///< Written; never changes.
  kStoring,    ///< Sealed, and being copied to its backing place.
  kLoading,    ///< Its hot bytes are on their way from its backing place.
  kSplit,      ///< Of a block: its pages have entries of their own.
  kElsewhere,  ///< Of a block: the same block was there before, in another span.
};

/// May attention read the hot bytes? (The three states stand side by side.)
constexpr bool IsReadable(PageState state) {
  return state >= PageState::kOpen && state <= PageState::kStoring;
}

/// A place on a lower tier.
struct Backing {
  uint64_t tier : 8 = 0;     ///< 0 = none, else as step::PageCopy.
  uint64_t offset : 56 = 0;  ///< Bytes from the tier's start.
  friend constexpr bool operator==(const Backing&, const Backing&) = default;
};

struct PageEntry {
  FrameId frame = kNoFrame;  ///< That holds the hot bytes, or (kSplit) the table of pages.
  uint16_t slot = 0;         ///< Of a page: which slot of the frame (PageLayout::PageOffset). Of a block 0.
  PageState state = PageState::kNone;
  KvType codec = KvType::kF16;
  Backing backing;

  static PageEntry Elsewhere(SpanId span, uint32_t block);
  /// REQUIRES: kElsewhere.
  SpanId elsewhere_span() const { return SpanId{frame.value}; }
  uint32_t elsewhere_block() const { return static_cast<uint32_t>(backing.offset); }

  friend constexpr bool operator==(const PageEntry&, const PageEntry&) = default;
};
static_assert(sizeof(PageEntry) == 16);

/// "" when the parts of an entry go together, else what does not.
std::string FindFault(const PageEntry& entry);

}  // namespace kvist::kv
