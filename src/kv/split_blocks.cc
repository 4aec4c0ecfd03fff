#include "kv/split_blocks.h"

#include <algorithm>
#include <set>

#include "base/check.h"

namespace kvist::kv {

FrameId SplitBlocks::Add(std::vector<PageEntry> pages, uint32_t references) {
  const FrameId table = spans_.AddPages(std::move(pages));
  references_.resize(std::max<size_t>(references_.size(), IndexOf(table) + 1));
  references_[IndexOf(table)] = references;
  ++tables_count_;
  return table;
}

FrameId SplitBlocks::Split(const PageEntry& block, uint32_t references) {
  KVIST_CHECK(block.state == PageState::kSealed && block.codec == layout_.type() && references > 0);
  std::vector<PageEntry> pages(layout_.pages(), block);
  for (uint32_t page = 0; page < pages.size(); ++page) pages[page].slot = static_cast<uint16_t>(page);
  slots_.AddFrame(block.frame, /*in_use=*/true);
  return Add(std::move(pages), references);
}

FrameId SplitBlocks::Place(std::span<const uint32_t> pages) {
  std::vector<PageEntry> table(layout_.pages(), PageEntry{.codec = layout_.type()});
  for (const uint32_t page : pages) {
    const PageSlot slot = slots_.Take(page);
    KVIST_CHECK(table[page].state == PageState::kNone);
    table[page] = {.frame = slot.frame, .slot = slot.slot, .state = PageState::kOpen, .codec = layout_.type()};
  }
  return Add(std::move(table), 1);
}

bool SplitBlocks::Release(FrameId table) {
  uint32_t& references = references_.at(IndexOf(table));
  KVIST_CHECK(references > 0);
  return --references == 0;
}

void SplitBlocks::FreeSlot(const PageEntry& page, std::vector<FrameId>& emptied) {
  if (page.frame == kNoFrame) return;
  if (const std::optional<FrameId> frame = slots_.Free({page.frame, page.slot})) emptied.push_back(*frame);
}

void SplitBlocks::Drop(FrameId table, std::span<const uint32_t> pages, std::vector<FrameId>& emptied) {
  for (const uint32_t page : pages) {
    FreeSlot(spans_.PagesOf(table)[page], emptied);
    spans_.PutPage(table, page, {.codec = layout_.type()});
  }
}

void SplitBlocks::Adopt(FrameId table, FrameId from, std::vector<FrameId>& emptied) {
  KVIST_CHECK(Release(from));
  for (uint32_t page = 0; page < layout_.pages(); ++page) {
    PageEntry moved = spans_.PagesOf(from)[page];
    if (moved.state == PageState::kNone) continue;
    FreeSlot(spans_.PagesOf(table)[page], emptied);
    moved.state = PageState::kSealed;
    spans_.PutPage(table, page, moved);
    spans_.PutPage(from, page, {.codec = layout_.type()});
  }
  Remove(from, emptied);
}

void SplitBlocks::Remove(FrameId table, std::vector<FrameId>& emptied) {
  KVIST_CHECK(references(table) == 0);
  for (const PageEntry& page : spans_.PagesOf(table)) FreeSlot(page, emptied);
  spans_.RemovePages(table);
  --tables_count_;
}

void SplitBlocks::CheckInvariants() const {
  std::set<PageSlot> named;
  uint32_t tables = 0;
  for (uint32_t i = 0; i < references_.size(); ++i) {
    const std::span<const PageEntry> pages = spans_.PagesOf(FrameId{kPageTableBit | i});
    if (pages.empty()) continue;
    ++tables;
    KVIST_CHECK(references_[i] > 0 && pages.size() == layout_.pages());
    for (uint32_t page = 0; page < pages.size(); ++page) {
      KVIST_CHECK(FindFault(pages[page]).empty());
      if (pages[page].frame == kNoFrame) continue;
      const PageSlot slot{pages[page].frame, pages[page].slot};
      KVIST_CHECK(slots_.frames().contains(slot.frame) && !slots_.IsFree(slot) && named.insert(slot).second);
      KVIST_CHECK(layout_.LaneOf(slot.slot).page_bytes == layout_.LaneOf(page).page_bytes);
    }
  }
  KVIST_CHECK(tables == tables_count_);
  size_t in_use = 0;
  for (const auto& [frame, count] : slots_.frames()) {
    KVIST_CHECK(count > 0);
    in_use += count;
  }
  KVIST_CHECK(in_use == named.size());
}

}  // namespace kvist::kv
