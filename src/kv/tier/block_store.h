#pragma once

/// @file
/// KV blocks on a drive, by content id: written behind each other into segment files, read back straight into frames,
/// found again after a restart. Whatever happens to the drive, a block that is read is the one that was written, or it
/// is missing; faults end in a counter, and in a store that only reads, or does nothing, where they must.
///
/// Calls start work and return; Poll brings what became of it. Threads: one owner (the engine thread). What a crash can
/// lose, and the files: docs/formats/kv-store.md. Writing again (carrying blocks on when a segment goes) is at most
/// carry_share / (1 - carry_share) of what is written. Non-goals: deciding what is worth storing (admission.h), frames.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "kv/tier/read_job.h"
#include "kv/tier/segment_file.h"
#include "kv/tier/segment_set.h"
#include "kv/tier/store_index.h"
#include "platform/disk.h"

namespace kvist::kv {

struct BlockStoreOptions {
  uint64_t size_max = uint64_t{20} << 30;       ///< On the drive. At least kSegmentsMin segments.
  uint64_t segment_bytes = uint64_t{64} << 20;  ///< Of a new store; smaller where size_max asks for that.
  uint64_t free_bytes_min = uint64_t{1} << 30;  ///< That stay free on the drive for others.
  double carry_share = 0.25;                    ///< Of a segment's bytes, carried on at most when it goes.
  uint64_t write_bytes = uint64_t{4} << 20;     ///< Of one request to the drive, about.
  uint64_t read_bytes = uint64_t{512} << 10;    ///< As much: many of these are faster than fewer large ones.
  uint64_t section_bytes = uint64_t{32} << 10;  ///< That are checked together: one layer of a block is a good size.
  uint64_t id_seed = 0;                         ///< Of a new store's identity; 0 = by chance.
  bool read_only = false;                       ///< Beside a process that writes, too. Nothing is changed.
  std::shared_ptr<const EvictionOrder> eviction = std::make_shared<LruOrder>();
};
inline constexpr uint64_t kSegmentsMin = 8;

/// A block to be stored.
struct BlockWrite {
  ContentId id, parent;
  BlockOrigin origin;
  uint64_t ops_signature = 0;
  std::span<const TokenId> tokens;     ///< 1..kBlockTokens
  std::span<const std::byte> payload;  ///< Unchanged until the ticket is done.
};

using StoreTicket = Strong<struct StoreTicketTag, uint64_t>;

/// How far a Read is. One that is not done may come several times, with more bytes each time.
struct ReadNews {
  StoreTicket ticket;
  uint64_t bytes_ready = 0;  ///< Of every payload that is not missing: they are there and right. UINT64_MAX = all.
  bool done = false;
  std::vector<uint32_t> missing;  ///< [done] Indices of blocks that are not there; their destinations hold anything.
};

/// What became of a Write.
struct WriteNews {
  StoreTicket ticket;
  std::vector<uint32_t> refused;  ///< Indices of blocks that are not stored by this ticket, nor were before.
};

struct StoreNews {
  std::vector<ReadNews> reads;
  std::vector<WriteNews> writes;
};

/// The longest stored beginning of a chain.
struct StoredRun {
  uint32_t blocks = 0;
  uint64_t payload_bytes = 0;
  uint64_t record_bytes = 0;  ///< That the drive reads for them.
};

/// kFull: nothing is written until there is room on the drive again, which CheckDrive finds out.
enum class StoreState : uint8_t { kWriting, kFull, kReadOnly, kDisabled };
std::string_view StoreStateName(StoreState state);

/// Totals since it was opened. Every block that was asked for is in one of the first group, every one that was offered
/// in one of the second; blocks = opened + stored - evicted - purged - damaged.
struct StoreStats {
  uint64_t read_blocks = 0, read_bytes = 0;        ///< Right, payloads.
  std::array<uint64_t, kReadFaults> missing = {};  ///< [ReadFault] [kNone] = 0.
  uint64_t stored_blocks = 0, stored_bytes = 0;    ///< Payloads.
  uint64_t duplicate_blocks = 0;                   ///< Already stored, or under way.
  uint64_t refused_blocks = 0;                     ///< Not writing, no room, or the drive failed.
  uint64_t opened_blocks = 0;                      ///< Found when it was opened.
  uint64_t evicted_blocks = 0, purged_blocks = 0;
  uint64_t damaged_blocks = 0;                             ///< Given up after a read.
  uint64_t carried_blocks = 0;                             ///< Written again.
  uint64_t drive_read_bytes = 0, drive_written_bytes = 0;  ///< Headers and padding included.
  uint64_t carried_bytes = 0;                              ///< Of these, written again.
  uint64_t read_errors = 0, write_errors = 0, sync_errors = 0;
  uint64_t unsealed_segments = 0, damaged_pages = 0;  ///< Met when it was opened.
  uint64_t resets = 0;                                ///< It was another version's, or its identity was lost.
};

struct StoreFigures {
  StoreState state = StoreState::kWriting;
  std::string reason;  ///< Why it is not kWriting.
  StoreStats totals;
  uint64_t blocks = 0, payload_bytes = 0, record_bytes = 0;
  uint64_t segments = 0, segment_bytes = 0, used_bytes = 0, size_max = 0;
  uint64_t index_bytes = 0;  ///< Memory.
  DiskReport disk;
};

/// Which blocks; those left out do not matter.
struct PurgeFilter {
  std::optional<TenantId> tenant;
  std::optional<uint64_t> cache_namespace;
  std::optional<uint64_t> fingerprint;
  bool Matches(const BlockOrigin& origin) const;
};

class BlockStore {
 public:
  /// Finds what is stored; waits for the drive. Damage is not an error. Errors: Unavailable: another process writes to
  /// it; NotFound: read-only, and there is no store; those of the drive, when a store cannot even be begun.
  static absl::StatusOr<std::unique_ptr<BlockStore>> Open(std::unique_ptr<Disk> disk, const BlockStoreOptions& options);
  ~BlockStore();  ///< As Close.

  /// Counts nothing as used. @param ids  in order of the text.
  StoredRun Lookup(std::span<const ContentId> ids) const;
  bool Contains(const ContentId& id) const;
  /// They are used now: they go later.
  void Touch(std::span<const ContentId> ids);

  /// Sorted and put together; each is one ticket's.
  /// @param group_bytes  so many bytes of every payload are asked for first, then the next; 0 = all at once.
  StoreTicket Read(std::span<const BlockRead> blocks, uint64_t group_bytes = 0);
  /// Blocks of one call lie together, in its order.
  StoreTicket Write(std::span<const BlockWrite> blocks);
  /// Appends what has happened. @param wait  until something has, if anything is under way.
  void Poll(StoreNews& out, bool wait = false);
  /// Reads, writes and upkeep that are not done.
  bool busy() const { return disk_->in_flight() > 0; }
  /// Poll would bring something at once.
  bool has_news() const { return !news_.reads.empty() || !news_.writes.empty(); }
  /// kFull only where a write found no room; where free space is short, what is offered is tried: kWriting.
  StoreState state() const { return state_; }
  /// To be called about once a second: a store whose folder was removed is disabled, and one that a write found full
  /// writes again where there is room, or its own blocks could give way. After n tries in vain the next one comes
  /// 2^n calls later, 64 at most.
  void CheckDrive();
  bool read_only() const { return options_.read_only; }  ///< Opened so.

  /// Seals what is being filled, and waits for everything. Afterwards only figures and news may be asked for.
  void Close();

  /// Removes blocks for good: their bytes are in none of the files afterwards. Waits for the drive.
  /// @return blocks removed. Errors: FailedPrecondition: opened read-only; those of the drive: then it is not done, and
  /// is to be repeated.
  absl::StatusOr<uint64_t> Purge(const PurgeFilter& filter);
  /// The same of these blocks, if any is here or on its way; a store that is opened read-only just finds them no more.
  /// Errors: those of the drive: they are not found any more then, but may be after a restart.
  absl::Status Forget(std::span<const ContentId> ids);
  /// Puts the blocks of segments that are half empty or less into new ones. Waits for the drive. Errors: as Purge.
  absl::Status Compact();

  StoreFigures Figures() const;
  struct Listed {
    BlockFacts facts;  ///< Without ops_signature.
    RecordAt at;
    StoredBlockUse use;
  };
  std::vector<Listed> List() const;  ///< In order of places.
  const StoreIndex& index() const { return index_; }
  /// Time goes on for what blocks take.
  void Advance(TimeNs now) { index_.ledger().Advance(now); }
  void CheckInvariants() const;

 private:
  struct ReadState {
    std::unique_ptr<ReadJob> job;
    uint64_t told = 0;   ///< bytes_ready that was reported.
    bool carry = false;  ///< Its blocks are to be written again.
  };
  struct WriteState {
    uint64_t pending = 0;
    std::vector<uint32_t> refused;
    bool carry = false, all_given = false;
  };
  struct WriteItem {
    uint64_t ticket = 0;
    uint32_t index = 0;
    PlacedBlock block;
  };
  struct WriteIo {
    SegmentId segment;
    uint64_t offset = 0, bytes = 0;
    std::vector<DiskBuffer> buffers;
    std::vector<WriteItem> items;
    std::vector<DiskMemory> bounce;
    bool carry = false;
  };
  /// A segment that is being filled, or sealed.
  struct Filling {
    std::vector<PlacedBlock> blocks;  ///< That are written.
    uint64_t next = 0;                ///< Offset of the next record.
    uint64_t records = 0, pending = 0;
    bool closing = false;
    uint64_t file_bytes = 0;  ///< Once its index is under way.
  };
  struct SealIo {
    SegmentId segment;
    bool sync = false;
    DiskMemory index;
  };
  struct ReadRequest {
    uint64_t ticket = 0;
    ReadIo io;
  };
  /// A segment whose best blocks are being written again before it goes.
  struct Carry {
    SegmentId victim;
    DiskMemory memory;
  };

  BlockStore(std::unique_ptr<Disk> disk, const BlockStoreOptions& options, const StoreIdentity& identity);
  static absl::StatusOr<StoreIdentity> OpenIdentity(Disk& disk, const BlockStoreOptions& options, bool* reset);
  void FindBlocks();
  void TakeSegment(SegmentId id, const SegmentContents& contents);

  // block_store_write.cc
  void Append(const BlockWrite& block, uint8_t generation, uint64_t ticket, uint32_t index, WriteIo& io);
  bool BeginSegment(bool carry);
  void CloseSegment(bool carry);
  void SubmitWrite(WriteIo& io);
  void FinishWrite(const WriteIo& io, const DiskCompletion& completion);
  void EndWrites(uint64_t ticket);
  void StepSeal(SegmentId id);
  void FinishSeal(SealIo& io, const DiskCompletion& completion);
  void StepSeals();
  /// For good; until there is room, where it is that which was missing.
  void StopWriting(const absl::Status& cause);
  /// Nothing has happened that forbids to change files.
  bool MayWrite() const { return state_ == StoreState::kWriting || state_ == StoreState::kFull; }

  // block_store_evict.cc
  bool MakeRoom();
  std::optional<SegmentId> PickVictim() const;
  void StartCarry(SegmentId victim, double share);
  void FinishCarryRead(const ReadJob& job);
  void FinishCarry();
  void DropSegment(SegmentId id);
  bool HasRoom(uint64_t segments) const;
  bool CouldHaveRoom() const;
  bool IsDriveFull() const;
  void SealAll();
  absl::Status PurgeSegments(std::span<const SegmentId> ids);
  absl::Status PurgeSegment(SegmentId id);

  void Dispatch(const DiskCompletion& completion);
  void SubmitReads(uint64_t ticket, std::vector<ReadIo> ios);
  void FinishRead(const ReadRequest& request, const DiskCompletion& completion);
  void TellReads(uint64_t ticket);
  void EndRead(const ReadState& state, ReadNews& news);
  void Drain();
  StorePlace PlaceIn(SegmentId segment, uint64_t offset = 0) const {
    return {.store = identity_.id, .segment = segment.value, .offset = offset};
  }

  std::unique_ptr<Disk> disk_;
  const BlockStoreOptions options_;
  const StoreIdentity identity_;
  StoreIndex index_;
  const StoreIndex nothing_;  ///< What a disabled store has.
  SegmentSet segments_;
  StoreState state_ = StoreState::kWriting;
  std::string reason_;
  uint32_t tries_in_vain_ = 0;   ///< To write again, one after another.
  uint32_t checks_to_wait_ = 0;  ///< Calls of CheckDrive until the next try.
  StoreStats stats_;
  bool closed_ = false;
  /// Files may show blocks that the index has given up: after a restart they would be there again.
  bool files_show_more_ = false;
  bool names_removed_ = false;  ///< Since the folder was synced: a loss of power may bring files back.

  std::optional<SegmentId> young_, old_;  ///< Being filled: with new blocks, and with carried ones.
  absl::flat_hash_map<SegmentId, Filling> filling_;
  absl::flat_hash_set<uint64_t> writing_;  ///< Lower halves of ids under way.
  std::optional<Carry> carry_;

  uint64_t next_tag_ = 1, next_ticket_ = 1;
  absl::flat_hash_map<uint64_t, ReadState> reads_;       ///< [ticket]
  absl::flat_hash_map<uint64_t, WriteState> writes_;     ///< [ticket]
  absl::flat_hash_map<uint64_t, ReadRequest> read_ios_;  ///< [tag]
  absl::flat_hash_map<uint64_t, WriteIo> write_ios_;     ///< [tag]
  absl::flat_hash_map<uint64_t, SealIo> seal_ios_;       ///< [tag]
  std::vector<DiskCompletion> completions_;
  StoreNews news_;
  uint32_t errors_in_a_row_ = 0;
};

}  // namespace kvist::kv
