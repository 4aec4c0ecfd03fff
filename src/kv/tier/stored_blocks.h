#pragma once

/// @file
/// The drive as a tier below hot memory: a BlockStore that reads into frames and writes from them, and says how fast
/// that is. Threads: engine thread only. Non-goals: as BlockStore.

#include <memory>

#include "absl/container/flat_hash_map.h"
#include "kv/cold_blocks.h"
#include "kv/frame_arena.h"
#include "kv/tier/block_store.h"
#include "kv/tier/transfer_rate.h"

namespace kvist::kv {

struct StoredBlocksOptions {
  uint64_t fingerprint = 0;  ///< As KvMemoryOptions.
  KvType codec = KvType::kF16;
  double read_bytes_per_s = 1e9;  ///< Measured by a calibration, or a guess; corrected by what reads take.
};

class StoredBlocks final : public ColdBlocks {
 public:
  /// @param arena  outlives it
  StoredBlocks(std::unique_ptr<BlockStore> store, const FrameArena& arena, const StoredBlocksOptions& options);

  ColdRun Lookup(std::span<const ContentId> ids) override;
  void CountLookup(const ColdRun& run) override;
  ColdPlaces PlacesFor(const ContentId& id) const override { return {.drive = IsWriting() && !store_->Contains(id)}; }
  double LoadNs(const ColdRun& run) const override;
  bool IsWriting() const override { return store_->state() == StoreState::kWriting; }
  ColdTicket Load(std::span<const ColdRead> blocks, TimeNs now) override;
  ColdTicket Store(std::span<const ColdWrite> blocks, TimeNs now) override;
  /// The same of blocks that are not in their frames. @param bytes  [blocks] of frame_bytes each, instead of these
  ColdTicket StoreFrom(std::span<const ColdWrite> blocks, std::span<const std::byte* const> bytes);
  void Poll(TimeNs now, ColdNews& out, bool wait) override;
  bool busy() const override { return store_->busy() || store_->has_news(); }
  void Close(const std::function<bool()>& /*keep*/) override { store_->Close(); }
  void Forget(std::span<const ContentId> ids) override;
  std::vector<TierFigures> Figures() const override;
  void Advance(TimeNs now) override { store_->Advance(now); }
  /// A block takes its record's bytes. Room of segments that no block takes is nobody's.
  std::vector<TierHolding> Holdings() const override;

  BlockStore& store() { return *store_; }

 private:
  std::span<std::byte> BytesOf(FrameId frame) const { return {arena_.Frame(frame), arena_.frame_bytes()}; }

  std::unique_ptr<BlockStore> store_;
  const FrameArena& arena_;
  const StoredBlocksOptions options_;
  TransferRate rate_;
  absl::flat_hash_map<StoreTicket, TransferRate::Sample> readings_;
  StoreNews news_;
  TimeNs check_due_{0};  ///< When the drive is next looked at.
  uint64_t lookup_blocks_ = 0, hit_blocks_ = 0;
};

}  // namespace kvist::kv
