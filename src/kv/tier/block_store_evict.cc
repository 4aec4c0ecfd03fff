// Room: which segment goes, what of it is carried on, and removing blocks for good.

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "kv/tier/block_store.h"

namespace kvist::kv {
namespace {

/// So many segments before the store is full the next one to go begins to be carried on, so that nobody waits for that.
constexpr uint64_t kSegmentsAhead = 3;

}  // namespace

bool BlockStore::HasRoom(uint64_t segments) const {
  const uint64_t bytes = segments * identity_.segment_bytes;
  const uint64_t free = disk_->FreeBytes();
  return segments_.used_bytes() + bytes <= options_.size_max && free >= bytes &&
         free - bytes >= options_.free_bytes_min;
}

/// Not so when others have filled the drive, and nothing of the store's own could give way.
bool BlockStore::CouldHaveRoom() const {
  if (HasRoom(1) || segments_.used_bytes() + identity_.segment_bytes > options_.size_max) return true;
  return std::ranges::any_of(segments_.All(), [&](SegmentId id) { return segments_.IsSealed(id); });
}

bool BlockStore::IsDriveFull() const {
  return state_ == StoreState::kWriting && !closed_ && !young_ && !CouldHaveRoom();
}

bool BlockStore::MakeRoom() {
  if (!carry_ && !HasRoom(kSegmentsAhead)) {
    if (const std::optional<SegmentId> victim = PickVictim()) StartCarry(*victim, options_.carry_share);
  }
  while (!HasRoom(1)) {
    const std::optional<SegmentId> victim = PickVictim();
    if (!victim || state_ != StoreState::kWriting) return false;
    DropSegment(*victim);
  }
  return state_ == StoreState::kWriting;
}

std::optional<SegmentId> BlockStore::PickVictim() const {
  std::optional<SegmentId> victim;
  double least = 0;
  for (const SegmentId id : segments_.All()) {
    if (!segments_.IsSealed(id) || (carry_ && carry_->victim == id)) continue;
    const double value = options_.eviction->SegmentValue(index_.UseOf(id, segments_.FileBytes(id), *options_.eviction));
    if (victim && value >= least) continue;
    victim = id;
    least = value;
  }
  return victim;
}

void BlockStore::DropSegment(SegmentId id) {
  for (const BlockSlot block : index_.BlocksOf(id)) {
    index_.Erase(block);
    ++stats_.evicted_blocks;
  }
  names_removed_ = true;
  if (const absl::Status status = segments_.Remove(id); !status.ok()) {
    files_show_more_ = true;
    StopWriting(status);
  }
}

void BlockStore::StartCarry(SegmentId victim, double share) {
  struct Candidate {
    double value;
    BlockSlot block;
  };
  std::vector<Candidate> candidates;
  for (const BlockSlot block : index_.BlocksOf(victim)) {
    candidates.push_back({options_.eviction->BlockValue(index_.UseOf(block)), block});
  }
  std::ranges::stable_sort(candidates, std::ranges::greater(), &Candidate::value);
  const bool all = share >= 1;
  const double room = share * static_cast<double>(identity_.segment_bytes);
  double carried = 0;
  uint64_t payloads = 0;
  std::vector<BlockSlot> chosen;
  for (const Candidate& candidate : candidates) {
    const BlockFacts facts = index_.FactsOf(candidate.block);
    const auto bytes = static_cast<double>(facts.record_bytes());
    if (all || (candidate.value > 0 && carried + bytes <= room)) {
      chosen.push_back(candidate.block);
      carried += bytes;
      payloads += StorePages(facts.payload_bytes);
    } else {
      index_.Erase(candidate.block);
      ++stats_.evicted_blocks;
    }
  }
  if (chosen.empty()) return DropSegment(victim);
  std::ranges::sort(chosen, {}, [this](BlockSlot block) { return index_.PlaceOf(block); });
  carry_ = Carry{.victim = victim, .memory = DiskMemory(payloads)};
  std::vector<BlockRead> reads;
  uint64_t at = 0;
  for (const BlockSlot block : chosen) {
    const BlockFacts facts = index_.FactsOf(block);
    reads.push_back({.id = facts.id, .into = carry_->memory.span().subspan(at, facts.payload_bytes)});
    at += StorePages(facts.payload_bytes);
  }
  const uint64_t ticket = next_ticket_++;
  ReadState& state = reads_[ticket];
  state.carry = true;
  state.job = std::make_unique<ReadJob>(index_, identity_.id, reads, 0);
  SubmitReads(ticket, state.job->Plan(options_.read_bytes));
  TellReads(ticket);
}

void BlockStore::FinishCarryRead(const ReadJob& job) {
  const uint64_t ticket = next_ticket_++;
  writes_[ticket].carry = true;
  WriteIo io{.carry = true};
  for (uint32_t i = 0; i < job.size(); ++i) {
    if (job.FaultOf(i) != ReadFault::kNone) continue;
    const RecordHeader& header = job.HeaderOf(i);
    const BlockFacts& facts = header.facts;
    const auto generation = static_cast<uint8_t>(std::min(facts.generation + 1, 255));
    Append({.id = facts.id,
            .parent = facts.parent,
            .origin = facts.origin,
            .ops_signature = facts.ops_signature,
            .tokens = std::span(header.tokens).first(facts.tokens),
            .payload = job.PayloadOf(i)},
           generation, ticket, i, io);
  }
  SubmitWrite(io);
  writes_.at(ticket).all_given = true;
  EndWrites(ticket);
}

void BlockStore::FinishCarry() {
  const SegmentId victim = carry_->victim;
  carry_.reset();
  if (state_ == StoreState::kWriting) return DropSegment(victim);
  files_show_more_ = true;  // A store that does not write keeps what it has, and what was not worth carrying with it.
}

/// Nothing is under way, and nothing is being filled.
void BlockStore::SealAll() {
  Drain();  // Carried blocks begin segments of their own.
  CloseSegment(false);
  CloseSegment(true);
  StepSeals();  // An index often finds room where a block did not.
  Drain();
}

absl::Status BlockStore::Compact() {
  if (options_.read_only || closed_) return absl::FailedPreconditionError("the store is open for reading alone");
  SealAll();
  std::vector<SegmentId> sparse;
  uint64_t dead = 0;
  for (const SegmentId id : segments_.All()) {
    const uint64_t live = index_.LiveBytes(id);
    if (!segments_.IsSealed(id) || live > identity_.segment_bytes / 2) continue;
    sparse.push_back(id);
    dead += segments_.FileBytes(id) - live;
  }
  // One that is merely not full stays as it is.
  if (sparse.size() == 1 && dead <= SegmentIndexBytes(index_.BlocksOf(sparse[0]).size())) return absl::OkStatus();
  for (const SegmentId id : sparse) {
    if (state_ != StoreState::kWriting) break;
    if (!segments_.Contains(id)) continue;  // It had to go meanwhile.
    StartCarry(id, 1);
    Drain();
  }
  CloseSegment(true);
  Drain();
  return state_ == StoreState::kWriting ? absl::OkStatus() : absl::UnavailableError(reason_);
}

absl::StatusOr<uint64_t> BlockStore::Purge(const PurgeFilter& filter) {
  if (options_.read_only || closed_) return absl::FailedPreconditionError("the store is open for reading alone");
  SealAll();
  uint64_t purged = 0;
  for (const SegmentId id : segments_.All()) {
    // From memory first: nobody finds a block whose bytes are being removed, whatever happens to the rest.
    for (const BlockSlot block : index_.BlocksOf(id)) {
      if (!filter.Matches(index_.FactsOf(block).origin)) continue;
      index_.Erase(block);
      ++purged;
      ++stats_.purged_blocks;
    }
  }
  KVIST_RETURN_IF_ERROR(PurgeSegments(segments_.All()));
  files_show_more_ = false;
  // Segments that could not be listed or opened may hold anybody's blocks.
  KVIST_ASSIGN_OR_RETURN(const std::vector<std::string> names, disk_->List());
  for (const std::string& name : names) {
    const SegmentId id{SegmentNumber(name)};
    if (id.value > 0 && !segments_.Contains(id)) KVIST_RETURN_IF_ERROR(disk_->Unlink(name));
  }
  KVIST_RETURN_IF_ERROR(disk_->SyncFolder());
  return purged;
}

absl::Status BlockStore::Forget(std::span<const ContentId> ids) {
  const auto concerned = [this](const ContentId& id) {
    return index_.Find(id) != kNoBlock || writing_.contains(id.low);
  };
  // What a segment loses that is being carried on is in its file until it goes.
  const bool show_more = files_show_more_ || carry_.has_value();
  if (closed_) return absl::OkStatus();
  if (!show_more && std::ranges::none_of(ids, concerned)) {
    return std::exchange(names_removed_, false) ? disk_->SyncFolder() : absl::OkStatus();
  }
  if (!options_.read_only) SealAll();
  std::vector<SegmentId> touched;
  for (const ContentId& id : ids) {
    const BlockSlot block = index_.Find(id);
    if (block == kNoBlock) continue;
    touched.push_back(index_.PlaceOf(block).segment);
    index_.Erase(block);
    ++stats_.purged_blocks;
  }
  if (options_.read_only) return absl::OkStatus();
  std::ranges::sort(touched);
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  KVIST_RETURN_IF_ERROR(PurgeSegments(files_show_more_ ? segments_.All() : touched));
  files_show_more_ = names_removed_ = false;
  return disk_->SyncFolder();
}

absl::Status BlockStore::PurgeSegments(std::span<const SegmentId> ids) {
  for (const SegmentId id : ids) {
    if (const absl::Status status = PurgeSegment(id); !status.ok()) {
      StopWriting(status);
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status BlockStore::PurgeSegment(SegmentId id) {
  const std::vector<BlockSlot> live = index_.BlocksOf(id);
  if (live.empty()) {
    filling_.erase(id);
    return segments_.Remove(id);
  }
  KVIST_ASSIGN_OR_RETURN(const DiskFile file, segments_.Use(id));
  const SegmentContents contents = ReadSegment(*disk_, file, PlaceIn(id));
  std::vector<PlacedBlock> kept;
  absl::Status status;
  uint64_t kept_end = 0;
  bool gaps = !contents.sealed || contents.blocks.size() != live.size();
  // Everything between records that somebody still finds goes: whose it was is not always known.
  for (const PlacedBlock& block : contents.blocks) {
    const BlockSlot slot = index_.Find(block.facts.id);
    if (slot == kNoBlock || index_.PlaceOf(slot) != RecordAt{id, block.offset}) continue;
    if (block.offset > kept_end) {
      gaps = true;
      if (status.ok()) status = disk_->Erase(file, kept_end, block.offset - kept_end);
    }
    kept_end = block.offset + block.facts.record_bytes();
    kept.push_back(block);
  }
  gaps |= contents.data_end != kept_end;  // A write that failed may have left something there.
  // Blocks that the file does not show any more are misses when they are read.
  uint64_t file_bytes = kept_end + SegmentIndexBytes(kept.size());
  if (status.ok() && gaps) {
    status = WriteSegmentIndex(*disk_, file, PlaceIn(id), kept, kept_end);
    if (absl::IsResourceExhausted(status)) {
      // What had to go goes all the same; records without an index are looked for at the next start.
      StopWriting(status);
      file_bytes = kept_end;
      status = disk_->Truncate(file, kept_end);
      if (status.ok()) status = SyncNow(*disk_, file);
    }
  }
  segments_.Release(id);
  KVIST_RETURN_IF_ERROR(status);
  if (gaps) segments_.Seal(id, file_bytes);
  filling_.erase(id);
  return absl::OkStatus();
}

}  // namespace kvist::kv
