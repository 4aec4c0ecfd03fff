#include "kv/tier/store_index.h"

#include <algorithm>

#include "base/check.h"

namespace kvist::kv {

StoreIndex::StoreIndex() : by_id_(0, Hash{&entries_}, Equal{&entries_}) {}

const StoreIndex::Entry& StoreIndex::EntryOf(BlockSlot block) const {
  KVIST_CHECK(block.value < entries_.size() && entries_[block.value].tokens > 0);
  return entries_[block.value];
}

StoreIndex::Entry& StoreIndex::EntryOf(BlockSlot block) {
  KVIST_CHECK(block.value < entries_.size() && entries_[block.value].tokens > 0);
  return entries_[block.value];
}

BlockSlot StoreIndex::Find(const ContentId& id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? kNoBlock : *it;
}

uint32_t StoreIndex::OriginSlot(const BlockOrigin& origin) {
  const auto [it, inserted] = origin_slots_.try_emplace(origin, static_cast<uint32_t>(origins_.size()));
  if (inserted) origins_.push_back(origin);
  return it->second;
}

void StoreIndex::Place(BlockSlot block, RecordAt at) {
  Entry& entry = entries_[block.value];
  entry.segment = at.segment.value;
  entry.page = static_cast<uint32_t>(at.offset / kStorePage);
  Segment& segment = segments_[at.segment.value];
  segment.blocks.push_back(block);
  segment.live_bytes += kStorePage + StorePages(entry.payload_bytes);
}

void StoreIndex::Unplace(const Entry& entry) {
  const auto it = segments_.find(entry.segment);
  KVIST_CHECK(it != segments_.end());
  it->second.live_bytes -= kStorePage + StorePages(entry.payload_bytes);
  if (it->second.live_bytes == 0) segments_.erase(it);
}

BlockSlot StoreIndex::Insert(const BlockFacts& facts, RecordAt at) {
  BlockSlot block{static_cast<uint32_t>(entries_.size())};
  if (free_.empty()) {
    entries_.emplace_back();
  } else {
    block = free_.back();
    free_.pop_back();
  }
  entries_[block.value] = {.id = facts.id,
                           .parent = facts.parent,
                           .last_use = ++uses_,
                           .payload_bytes = facts.payload_bytes,
                           .section_bytes = facts.section_bytes,
                           .origin = OriginSlot(facts.origin),
                           .tokens = static_cast<uint8_t>(facts.tokens),
                           .generation = facts.generation};
  KVIST_CHECK(by_id_.insert(block).second);
  Place(block, at);
  ++live_;
  live_bytes_ += facts.record_bytes();
  payload_bytes_ += facts.payload_bytes;
  ledger_.Add(facts.origin.tenant, facts.record_bytes());
  return block;
}

void StoreIndex::Erase(BlockSlot block) {
  Entry& entry = EntryOf(block);
  Unplace(entry);
  by_id_.erase(block);
  --live_;
  const uint64_t record_bytes = kStorePage + StorePages(entry.payload_bytes);
  live_bytes_ -= record_bytes;
  ledger_.Remove(origins_[entry.origin].tenant, record_bytes);
  payload_bytes_ -= entry.payload_bytes;
  entry = {};
  free_.push_back(block);
}

void StoreIndex::Move(BlockSlot block, RecordAt at, uint8_t generation) {
  Entry& entry = EntryOf(block);
  Unplace(entry);
  entry.generation = generation;
  entry.hits = 0;
  Place(block, at);
}

void StoreIndex::Touch(BlockSlot block) {
  Entry& entry = EntryOf(block);
  entry.last_use = ++uses_;
  if (entry.hits < UINT16_MAX) ++entry.hits;
}

BlockFacts StoreIndex::FactsOf(BlockSlot block) const {
  const Entry& entry = EntryOf(block);
  return {.id = entry.id,
          .parent = entry.parent,
          .origin = origins_[entry.origin],
          .payload_bytes = entry.payload_bytes,
          .section_bytes = entry.section_bytes,
          .tokens = entry.tokens,
          .generation = entry.generation};
}

RecordAt StoreIndex::PlaceOf(BlockSlot block) const {
  const Entry& entry = EntryOf(block);
  return {.segment = SegmentId{entry.segment}, .offset = uint64_t{entry.page} * kStorePage};
}

StoredBlockUse StoreIndex::UseOf(BlockSlot block) const {
  const Entry& entry = EntryOf(block);
  return {.last_use = entry.last_use,
          .now = uses_,
          .hits = entry.hits,
          .tokens = entry.tokens,
          .payload_bytes = entry.payload_bytes,
          .generation = entry.generation};
}

std::vector<BlockSlot> StoreIndex::BlocksOf(SegmentId segment) const {
  std::vector<BlockSlot> blocks;
  const auto it = segments_.find(segment.value);
  if (it == segments_.end()) return blocks;
  for (const BlockSlot block : it->second.blocks) {
    const Entry& entry = entries_[block.value];
    if (entry.tokens > 0 && entry.segment == segment.value) blocks.push_back(block);
  }
  std::ranges::sort(blocks, {}, [this](BlockSlot block) { return entries_[block.value].page; });
  // A slot that was erased and used again for the same segment stands there twice.
  const auto twice = std::ranges::unique(blocks);
  blocks.erase(twice.begin(), twice.end());
  return blocks;
}

uint64_t StoreIndex::LiveBytes(SegmentId segment) const {
  const auto it = segments_.find(segment.value);
  return it == segments_.end() ? 0 : it->second.live_bytes;
}

SegmentUse StoreIndex::UseOf(SegmentId segment, uint64_t file_bytes, const EvictionOrder& order) const {
  SegmentUse use{.file_bytes = file_bytes, .live_bytes = LiveBytes(segment)};
  if (use.live_bytes == 0) return use;
  for (const BlockSlot block : BlocksOf(segment)) {
    const StoredBlockUse one = UseOf(block);
    use.last_use = std::max(use.last_use, one.last_use);
    use.value += order.BlockValue(one);
  }
  return use;
}

uint64_t StoreIndex::memory_bytes() const {
  uint64_t bytes = entries_.capacity() * sizeof(Entry) + free_.capacity() * sizeof(BlockSlot) +
                   by_id_.capacity() * (sizeof(BlockSlot) + 1) + origins_.capacity() * sizeof(BlockOrigin) +
                   origin_slots_.capacity() * (sizeof(BlockOrigin) + sizeof(uint64_t) + 1) +
                   segments_.capacity() * (sizeof(Segment) + sizeof(uint64_t) + 1);
  for (const auto& [number, segment] : segments_) bytes += segment.blocks.capacity() * sizeof(BlockSlot);
  return bytes;
}

void StoreIndex::CheckInvariants() const {
  size_t live = 0;
  uint64_t bytes = 0;
  for (const auto& [number, segment] : segments_) {
    uint64_t segment_bytes = 0;
    uint64_t free = 0;
    for (const BlockSlot block : BlocksOf(SegmentId{number})) {
      const RecordAt at = PlaceOf(block);
      KVIST_CHECK(at.offset >= free);
      free = at.offset + FactsOf(block).record_bytes();
      segment_bytes += FactsOf(block).record_bytes();
      KVIST_CHECK(Find(entries_[block.value].id) == block);
      ++live;
    }
    KVIST_CHECK(segment_bytes == segment.live_bytes && segment_bytes > 0);
    bytes += segment_bytes;
  }
  KVIST_CHECK(live == live_ && by_id_.size() == live_ && bytes == live_bytes_);
  KVIST_CHECK(ledger_.bytes() == live_bytes_);
  KVIST_CHECK(live_ + free_.size() == entries_.size());
}

}  // namespace kvist::kv
