#pragma once

/// @file
/// Cold memory above a drive, or alone, as one tier for the engine. A chain may lie in both in any mixture: each block
/// comes from cold memory if that has it, and from the drive otherwise. Where a load needs both, the copies are paced
/// so that they end with the drive's reads (pacer.h). Blocks from the drive come to cold memory when they leave hot
/// memory, as all do: a copy at once would lie in memory twice.
///
/// At Close what cold memory alone has is written to the drive, as far as it may be. Threads: engine thread only.
/// Errors: none. Non-goals: which blocks the drive gets (admission.h).

#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kv/cold_blocks.h"
#include "kv/tier/ram_blocks.h"
#include "kv/tier/stored_blocks.h"

namespace kvist::kv {

struct TierStackOptions {
  bool paced = true;  ///< Off for measuring.
};

class TierStack final : public ColdBlocks {
 public:
  /// @param drive  may be null @param arena  outlives it
  TierStack(std::unique_ptr<RamBlocks> memory, std::unique_ptr<StoredBlocks> drive, const FrameArena& arena,
            const TierStackOptions& options = {});

  ColdRun Lookup(std::span<const ContentId> ids) override;
  void CountLookup(const ColdRun& run) override;
  ColdPlaces PlacesFor(const ContentId& id) const override;
  double LoadNs(const ColdRun& run) const override;
  bool IsWriting() const override { return true; }
  ColdTicket Load(std::span<const ColdRead> blocks, TimeNs now) override;
  ColdTicket Store(std::span<const ColdWrite> blocks, TimeNs now) override;
  void Poll(TimeNs now, ColdNews& out, bool wait) override;
  bool busy() const override { return memory_->busy() || (drive_ != nullptr && drive_->busy()); }
  void Close(const std::function<bool()>& keep) override;
  void Forget(std::span<const ContentId> ids) override;
  std::vector<TierFigures> Figures() const override;
  void Advance(TimeNs now) override;
  std::vector<TierHolding> Holdings() const override;

  RamBlocks& memory() { return *memory_; }
  StoredBlocks* drive() { return drive_.get(); }

 private:
  enum class Part : uint8_t { kMemory, kDrive };
  struct Transfer {
    bool load = false;
    uint32_t parts = 0;                         ///< That are not done.
    std::optional<ColdTicket> paced;            ///< In cold memory, until the drive's part is done.
    std::vector<uint32_t> memory_of, drive_of;  ///< [part's block] index in the call.
    std::vector<uint32_t> missing;
  };

  void Await(Part part, ColdTicket own, ColdTicket whole);
  void Take(Part part, ColdNews& news, ColdNews& out);
  void EndPart(Part part, ColdTicket own, const std::vector<uint32_t>& missing, ColdNews& out);
  void SaveMemory(const std::function<bool()>& keep);

  const std::unique_ptr<RamBlocks> memory_;
  const std::unique_ptr<StoredBlocks> drive_;
  const FrameArena& arena_;
  const TierStackOptions options_;
  absl::flat_hash_map<ColdTicket, Transfer> transfers_;
  absl::flat_hash_map<ColdTicket, ColdTicket> of_memory_, of_drive_;  ///< [part's ticket] the whole's.
  uint64_t next_ticket_ = 1;
  ColdNews memory_news_, drive_news_;
};

}  // namespace kvist::kv
