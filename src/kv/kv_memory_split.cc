// KvMemory's part that splits blocks into pages, moves these and puts blocks together again.

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "kv/kv_memory.h"

namespace kvist::kv {

/// A block is somewhere else from now on: in its own entry, in those of whoever copies from it, and in the tree.
void KvMemory::Relocate(const BlockPlace& place, FrameId from, const PageEntry& entry) {
  // The tree may have forgotten the block while somebody copied from it.
  if (spans_.FrameOf(place.span, place.block) == from) spans_.Put(place.span, place.block, entry);
  for (const auto& [id, sequence] : sequences_) {
    const std::optional<SpanId>& source = sequence.copy_source;
    if (source && spans_.FrameOf(*source, 0) == from) spans_.Put(*source, 0, entry);
  }
  if (tree_.Contains(from)) tree_.Rename(from, entry.frame);
}

bool KvMemory::SplitBlock(SpanId span, uint32_t block) {
  const PageEntry entry = spans_.At(span, block);
  if (!split_ || entry.state != PageState::kSealed || entry.backing.tier != 0) return false;
  const uint32_t references = pool_.references(entry.frame);
  if (references == 0 || pool_.InTransfer(entry.frame) || book_.Knows(entry.frame)) return false;
  const FrameId table = split_->Split(entry, references);
  holds_.Rename(entry.frame, table, references);
  for (uint32_t i = 1; i < references; ++i) pool_.Release(entry.frame, /*keep=*/false);  // The pages keep one.
  Relocate({span, block}, entry.frame, {.frame = table, .state = PageState::kSplit, .codec = entry.codec});
  return true;
}

void KvMemory::DropPages(SpanId span, uint32_t block, std::span<const uint32_t> pages) {
  const PageEntry& entry = spans_.At(span, block);
  KVIST_CHECK(entry.state == PageState::kSplit && !IsMoving(entry.frame));
  split_->Drop(entry.frame, pages, emptied_);
  ReleaseEmptied();
}

bool KvMemory::IsMoving(FrameId table) const {
  return std::ranges::any_of(moves_, [&](const Move& move) { return move.table == table; });
}

void KvMemory::ReleaseEmptied() {
  for (const FrameId frame : emptied_) pool_.Release(frame, /*keep=*/false);
  emptied_.clear();
}

std::optional<BlockCopy> KvMemory::StartMove(const BlockPlace& from, FrameId table, const PageEntry& target) {
  const BlockCopy copy{from.span, from.block, spans_.Open(), 0};
  spans_.Append(copy.target, target);
  // Whatever becomes of the sequences meanwhile, both sides stay until the move is over.
  spans_.Hold(from.span);
  Reference(table);
  moves_.push_back({copy, table});
  return copy;
}

std::optional<BlockCopy> KvMemory::MovePages(SpanId span, uint32_t block, std::span<const uint32_t> pages) {
  const BlockPlace from = spans_.Locate(span, block);
  const FrameId table = spans_.FrameOf(span, block);
  KVIST_CHECK(IsPageTable(table));
  for (const uint32_t page : pages) KVIST_CHECK(IsReadable(spans_.PagesOf(table)[page].state));
  const uint32_t frames = split_->FramesNeeded(pages);
  if (IsMoving(table) || frames > AvailableFrames()) return std::nullopt;
  for (uint32_t i = 0; i < frames; ++i) {
    const std::optional<FrameId> frame = TakeFrame(from.span, from.block);
    KVIST_CHECK(frame.has_value());
    split_->AddFrame(*frame);
  }
  return StartMove(from, table,
                   {.frame = split_->Place(pages), .state = PageState::kSplit, .codec = split_->layout().type()});
}

std::optional<BlockCopy> KvMemory::MergeBlock(SpanId span, uint32_t block) {
  const BlockPlace from = spans_.Locate(span, block);
  const FrameId table = spans_.FrameOf(span, block);
  KVIST_CHECK(IsPageTable(table));
  const bool whole =
      std::ranges::all_of(spans_.PagesOf(table), [](const PageEntry& page) { return IsReadable(page.state); });
  if (!whole || IsMoving(table)) return std::nullopt;
  const std::optional<FrameId> frame = TakeFrame(from.span, from.block);
  if (!frame) return std::nullopt;
  return StartMove(from, table, {.frame = *frame, .state = PageState::kOpen, .codec = split_->layout().type()});
}

void KvMemory::FinishMove(const BlockCopy& copy) {
  const auto it = std::ranges::find(moves_, copy, &Move::copy);
  KVIST_CHECK(it != moves_.end());
  const FrameId table = it->table, target = spans_.FrameOf(copy.target, 0);
  moves_.erase(it);
  if (IsPageTable(target)) {
    split_->Adopt(table, target, emptied_);
    Release(table);
  } else if (split_->references(table) == 1 && !tree_.Contains(table)) {
    pool_.Release(target, /*keep=*/false);  // Nobody wants the block any more.
    Release(table);
  } else {
    Relocate({copy.source, copy.source_block}, table,
             {.frame = target, .state = PageState::kSealed, .codec = split_->layout().type()});
    const uint32_t holders = split_->references(table);
    holds_.Rename(table, target, holders);
    while (!split_->Release(table)) pool_.Reference(target);  // For each but the move's own.
    pool_.Release(target, /*keep=*/tree_.Contains(target));
    split_->Remove(table, emptied_);
  }
  ReleaseEmptied();
  spans_.Release(copy.target);
  spans_.Release(copy.source);
}

}  // namespace kvist::kv
