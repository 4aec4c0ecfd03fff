#pragma once

/// @file
/// Which blocks a store has and where: an entry of 72 bytes for each, found by content id, and a list for each segment.
/// Threads: engine thread only. Non-goals: bytes on the drive, deciding what goes.

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "kv/tier/eviction_order.h"
#include "kv/tier/store_format.h"
#include "kv/tier/tier_ledger.h"

namespace kvist::kv {

/// Index of an entry; meaningless once the entry is erased.
using BlockSlot = Strong<struct BlockSlotTag, uint32_t>;
inline constexpr BlockSlot kNoBlock{UINT32_MAX};
/// Numbers of segment files are never used twice.
using SegmentId = Strong<struct SegmentIdTag, uint64_t>;

/// A record in a segment.
struct RecordAt {
  SegmentId segment;
  uint64_t offset = 0;
  friend auto operator<=>(const RecordAt&, const RecordAt&) = default;
};

class StoreIndex {
 public:
  StoreIndex();
  StoreIndex(const StoreIndex&) = delete;
  StoreIndex& operator=(const StoreIndex&) = delete;

  BlockSlot Find(const ContentId& id) const;
  /// REQUIRES: not there yet.
  BlockSlot Insert(const BlockFacts& facts, RecordAt at);
  void Erase(BlockSlot block);
  /// The same contents lie there now. They have not been used since.
  void Move(BlockSlot block, RecordAt at, uint8_t generation);
  /// Counts a use.
  void Touch(BlockSlot block);

  /// From memory; ops_signature is on the drive alone and 0 here.
  BlockFacts FactsOf(BlockSlot block) const;
  RecordAt PlaceOf(BlockSlot block) const;
  StoredBlockUse UseOf(BlockSlot block) const;

  /// Blocks of a segment, in order of their places.
  std::vector<BlockSlot> BlocksOf(SegmentId segment) const;
  uint64_t LiveBytes(SegmentId segment) const;
  /// @param file_bytes  of the segment
  SegmentUse UseOf(SegmentId segment, uint64_t file_bytes, const EvictionOrder& order) const;

  size_t size() const { return live_; }
  uint64_t live_bytes() const { return live_bytes_; }  ///< Of records.
  uint64_t payload_bytes() const { return payload_bytes_; }
  /// Whose records take how much, by BlockOrigin::tenant.
  TierLedger& ledger() { return ledger_; }
  const TierLedger& ledger() const { return ledger_; }
  /// Memory that all this takes.
  uint64_t memory_bytes() const;

  /// Aborts unless counts agree. For tests.
  void CheckInvariants() const;

 private:
  struct Entry {
    ContentId id, parent;
    uint64_t last_use = 0;
    uint64_t segment = 0;
    uint32_t page = 0;  ///< In the segment, in pages.
    uint32_t payload_bytes = 0, section_bytes = 0;
    uint32_t origin = 0;
    uint16_t hits = 0;
    uint8_t tokens = 0;  ///< 0 = the slot is free.
    uint8_t generation = 0;
  };
  static_assert(sizeof(Entry) == 72);

  /// By content id, which is a hash already.
  struct Hash {
    using is_transparent = void;
    const std::vector<Entry>* entries;
    size_t operator()(const ContentId& id) const { return id.low; }
    size_t operator()(BlockSlot block) const { return (*entries)[block.value].id.low; }
  };
  struct Equal {
    using is_transparent = void;
    const std::vector<Entry>* entries;
    const ContentId& IdOf(BlockSlot block) const { return (*entries)[block.value].id; }
    const ContentId& IdOf(const ContentId& id) const { return id; }
    bool operator()(const auto& a, const auto& b) const { return IdOf(a) == IdOf(b); }
  };
  struct Segment {
    std::vector<BlockSlot> blocks;  ///< Some may have gone: those whose entry names another place.
    uint64_t live_bytes = 0;
  };

  uint32_t OriginSlot(const BlockOrigin& origin);
  const Entry& EntryOf(BlockSlot block) const;
  Entry& EntryOf(BlockSlot block);
  void Place(BlockSlot block, RecordAt at);
  void Unplace(const Entry& entry);

  std::vector<Entry> entries_;
  std::vector<BlockSlot> free_;
  absl::flat_hash_set<BlockSlot, Hash, Equal> by_id_;
  absl::flat_hash_map<uint64_t, Segment> segments_;
  std::vector<BlockOrigin> origins_;
  absl::flat_hash_map<BlockOrigin, uint32_t> origin_slots_;
  size_t live_ = 0;
  uint64_t live_bytes_ = 0, payload_bytes_ = 0;
  uint64_t uses_ = 0;
  TierLedger ledger_;
};

}  // namespace kvist::kv
