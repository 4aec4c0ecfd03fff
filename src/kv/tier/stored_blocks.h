#pragma once

/// @file
/// The drive as a tier below hot memory: a BlockStore that reads into frames and writes from them, and says how fast
/// that is. Threads: engine thread only. Non-goals: as BlockStore.

#include <memory>

#include "absl/container/flat_hash_map.h"
#include "kv/cold_blocks.h"
#include "kv/frame_arena.h"
#include "kv/tier/block_store.h"

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
  bool Contains(const ContentId& id) const override { return store_->Contains(id); }
  double LoadNs(const ColdRun& run) const override;
  bool IsWriting() const override { return store_->state() == StoreState::kWriting; }
  ColdTicket Load(std::span<const ColdRead> blocks, TimeNs now) override;
  ColdTicket Store(std::span<const ColdWrite> blocks, TimeNs now) override;
  void Poll(TimeNs now, ColdNews& out, bool wait) override;
  bool busy() const override { return store_->busy() || store_->has_news(); }
  void Close() override { store_->Close(); }
  std::vector<TierFigures> Figures() const override;

  BlockStore& store() { return *store_; }

 private:
  struct Reading {
    uint64_t bytes = 0;
    TimeNs since{0};
    bool alone = false;  ///< Nothing else was read when it began.
  };

  std::span<std::byte> BytesOf(FrameId frame) const { return {arena_.Frame(frame), arena_.frame_bytes()}; }
  void Learn(const Reading& reading, TimeNs now);

  std::unique_ptr<BlockStore> store_;
  const FrameArena& arena_;
  const StoredBlocksOptions options_;
  double read_bytes_per_s_;
  absl::flat_hash_map<StoreTicket, Reading> readings_;
  StoreNews news_;
};

}  // namespace kvist::kv
