#pragma once

/// @file
/// Blocks whose pages are resident, or not, one by one: for policies that keep some heads or layers of a block only. A
/// split block has a table of pages in the SpanTable, named by an id that stands where its frame was; this counts the
/// references to it and knows the slots in which its pages lie. Frames come from and go back to the caller. Threads:
/// engine thread only. Non-goals: who may be split, copying of bytes (KvMemory).

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"
#include "kv/page_layout.h"
#include "kv/page_slots.h"
#include "kv/span_table.h"

namespace kvist::kv {

class SplitBlocks {
 public:
  SplitBlocks(const PageLayout& layout, SpanTable& spans) : layout_(layout), slots_(layout), spans_(spans) {}

  const PageLayout& layout() const { return layout_; }
  const PageSlots& slots() const { return slots_; }

  /// A table for the pages of a block whose frame this takes over; they stay where they are.
  FrameId Split(const PageEntry& block, uint32_t references);
  /// A table, referenced once, with a slot for each of `pages` and nothing for the others. REQUIRES:
  /// FramesNeeded(pages) frames were added.
  FrameId Place(std::span<const uint32_t> pages);
  uint32_t FramesNeeded(std::span<const uint32_t> pages) const { return slots_.FramesNeeded(pages); }
  void AddFrame(FrameId frame) { slots_.AddFrame(frame, /*in_use=*/false); }

  void Reference(FrameId table) { ++references_.at(IndexOf(table)); }
  /// @return whether that was the last one; then Remove is to follow.
  bool Release(FrameId table);
  uint32_t references(FrameId table) const { return references_.at(IndexOf(table)); }

  /// These pages lose their places. @param emptied  frames that are no longer used are appended.
  void Drop(FrameId table, std::span<const uint32_t> pages, std::vector<FrameId>& emptied);
  /// The pages that `from` has are where it has them; `from` goes. REQUIRES: `from` is referenced once.
  void Adopt(FrameId table, FrameId from, std::vector<FrameId>& emptied);
  /// REQUIRES: not referenced.
  void Remove(FrameId table, std::vector<FrameId>& emptied);

  uint32_t tables_count() const { return tables_count_; }

  /// Aborts unless each slot that is in use is named by exactly one page, and has its size. O(pages); for tests.
  void CheckInvariants() const;

 private:
  static uint32_t IndexOf(FrameId table) { return table.value & ~kPageTableBit; }
  FrameId Add(std::vector<PageEntry> pages, uint32_t references);
  void FreeSlot(const PageEntry& page, std::vector<FrameId>& emptied);

  PageLayout layout_;
  PageSlots slots_;
  SpanTable& spans_;
  std::vector<uint32_t> references_;  ///< [tables]
  uint32_t tables_count_ = 0;
};

}  // namespace kvist::kv
