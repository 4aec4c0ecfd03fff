#pragma once

/// @file
/// Cold memory: blocks that had to leave hot memory, copied to memory that no step reads. Everything that leaves is
/// taken in; who left hot memory longest ago goes. (A block that came back keeps its place in that order: hot memory
/// has it meanwhile, so its copy may go early.) Copies are made in slices, one a Poll, on the thread that polls: a
/// worker of its own would take the same bandwidth and a core from the steps. Loads go before stores.
///
/// Threads: engine thread only. Errors: none; a block that is not there is missing. Non-goals: drives, and who reads
/// from where (tier_stack.h).

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "kv/cold_blocks.h"
#include "kv/frame_arena.h"
#include "kv/page_layout.h"
#include "kv/tier/frame_codec.h"
#include "kv/tier/pacer.h"
#include "kv/tier/tier_ledger.h"
#include "kv/tier/transfer_rate.h"
#include "platform/anonymous_memory.h"

namespace kvist::kv {

struct RamBlocksOptions {
  uint64_t bytes_max = 0;                    ///< At least one block.
  uint64_t slice_bytes = uint64_t{2} << 20;  ///< Of frames, copied by one Poll; at least one block is.
  double copy_bytes_per_s = 4e9;             ///< A guess, corrected by what copies take.
};

class RamBlocks {
 public:
  /// @param arena  of the frames; outlives it. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<RamBlocks>> Create(const FrameArena& arena, std::unique_ptr<FrameCodec> codec,
                                                           const RamBlocksOptions& options);

  /// @return [ids] which are here. In no figures.
  std::vector<bool> Lookup(std::span<const ContentId> ids) const;
  /// Somebody goes on with what was found.
  void CountLookup(uint32_t asked, uint32_t found) {
    totals_.lookup_blocks += asked;
    totals_.hit_blocks += found;
  }
  bool Contains(const ContentId& id) const { return Find(id) != kNone; }

  /// @param pacer  who says when to copy, until Hasten; nullopt = at once.
  ColdTicket Load(std::span<const ColdRead> blocks, TimeNs now, std::optional<TransferPacer> pacer);
  /// What it waited for is there: a paced load goes on as fast as it can. Unknown tickets are nobody's.
  void Hasten(ColdTicket ticket);
  /// Blocks that are here already count as used.
  ColdTicket Store(std::span<const ColdWrite> blocks);
  /// One slice of copies. @param wait  all of them, pacers or not
  void Poll(TimeNs now, ColdNews& out, bool wait);
  bool busy() const { return !loads_.empty() || !stores_.empty(); }
  /// As ColdBlocks.
  void Forget(std::span<const ContentId> ids);

  /// How long copying so many blocks back is likely to take. Nanoseconds.
  double LoadNs(uint32_t blocks) const;
  double copy_bytes_per_s() const { return rate_.bytes_per_s(); }
  TierFigures Figures() const;
  /// As ColdBlocks. A block takes its encoded bytes.
  void Advance(TimeNs now) { ledger_.Advance(now); }
  std::vector<TierHolding> Holdings() const { return ledger_.Holdings(kColdMemoryTier); }
  const FrameCodec& codec() const { return *codec_; }

  /// A block, until the next call.
  struct Kept {
    ColdWrite facts;  ///< Without frame and places.
    const std::byte* encoded;
  };
  /// Calls with each block, the one that left hot memory last first, until it says false.
  void Visit(const std::function<bool(const Kept&)>& visit) const;

  void CheckInvariants() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  /// Room for one block.
  struct Slot {
    ContentId id, parent;
    uint64_t cache_namespace = 0, ops_signature = 0;
    TenantId tenant;
    std::array<TokenId, kBlockTokens> tokens;
    uint32_t tokens_count = 0;
    bool used = false, filling = false;     ///< Holds a block; or will, and nobody finds it before.
    bool forgotten = false;                 ///< Neither any more: free once its copies are made.
    uint32_t readers = 0;                   ///< Copies from it that are to be made.
    uint32_t older = kNone, newer = kNone;  ///< Of those that are used.
  };
  struct Copy {
    uint32_t slot;
    FrameId frame;
  };
  struct Transfer {
    ColdTicket ticket;
    std::vector<Copy> copies;
    size_t next = 0;
    std::vector<uint32_t> missing;
    std::optional<TransferPacer> pacer;
    TransferRate::Sample sample;
  };

  RamBlocks(const FrameArena& arena, std::unique_ptr<FrameCodec> codec, const RamBlocksOptions& options,
            AnonymousMemory memory, uint32_t slots);

  std::byte* BytesOf(uint32_t slot) const { return memory_.data() + slot * codec_->encoded_bytes(); }
  uint32_t Find(const ContentId& id) const;
  bool Holds(const Slot& slot, const ColdRead& block) const;
  void Unlink(uint32_t slot);
  void LinkNewest(uint32_t slot);
  uint32_t TakeSlot();
  void Remove(uint32_t slot);
  void Free(uint32_t slot);
  void Fill(uint32_t slot, const ColdWrite& block);
  void MakeCopy(const Copy& copy, bool load);
  bool Advance(Transfer& transfer, bool load, bool wait, uint64_t& left, TimeNs now);

  const FrameArena& arena_;
  const std::unique_ptr<FrameCodec> codec_;
  const RamBlocksOptions options_;
  const AnonymousMemory memory_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  absl::flat_hash_map<uint64_t, uint32_t> index_;  ///< [lower half of the content's id] slot, filling or not.
  uint32_t oldest_ = kNone, newest_ = kNone;
  std::list<Transfer> loads_, stores_;
  uint64_t next_ticket_ = 1;
  TransferRate rate_;
  TierLedger ledger_;
  TierFigures totals_;
};

}  // namespace kvist::kv
