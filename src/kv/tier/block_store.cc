#include "kv/tier/block_store.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "base/byte_size.h"
#include "base/check.h"
#include "base/prng.h"
#include "base/status.h"

namespace kvist::kv {
namespace {

constexpr const char* kLockName = "lock";
constexpr const char* kIdentityName = "store";
constexpr const char* kIdentityPart = "store.part";
/// So many reads that the drive refused, one after another, are the end of it.
constexpr uint32_t kErrorsMax = 32;

Hash128 NewId(uint64_t seed) {
  std::random_device chance;
  const auto word = [&] { return uint64_t{chance()} << 32 | chance(); };
  if (seed != 0) return {Mix64(seed), Mix64(seed + 1)};
  return {word(), word()};
}

absl::StatusOr<StoreIdentity> ReadIdentity(Disk& disk) {
  KVIST_ASSIGN_OR_RETURN(const DiskFile file, disk.Open(kIdentityName, DiskOpen::kRead));
  const DiskMemory memory(2 * kStorePage);
  const absl::StatusOr<uint64_t> got = ReadNow(disk, file, 0, {memory.data(), memory.size()});
  disk.Close(file);
  if (!got.ok()) return absl::DataLossError(std::string(got.status().message()));
  return ParseStoreIdentity(memory.span().first(*got));
}

/// All or nothing of it is there after a crash.
absl::Status WriteIdentity(Disk& disk, const StoreIdentity& identity) {
  const std::string text = EncodeStoreIdentity(identity);
  const DiskMemory memory(text.size());
  std::memcpy(memory.data(), text.data(), text.size());
  (void)disk.Unlink(kIdentityPart);  // Of one that was killed.
  KVIST_ASSIGN_OR_RETURN(const DiskFile file, disk.Open(kIdentityPart, DiskOpen::kCreate));
  absl::Status status = WriteNow(disk, file, 0, {memory.data(), memory.size()});
  if (status.ok()) status = SyncNow(disk, file);
  disk.Close(file);
  KVIST_RETURN_IF_ERROR(status);
  KVIST_RETURN_IF_ERROR(disk.Rename(kIdentityPart, kIdentityName));
  return disk.SyncFolder();
}

uint64_t SegmentBytesFor(const BlockStoreOptions& options) {
  const uint64_t most = options.size_max / kSegmentsMin / kStorePage * kStorePage;
  return std::max(std::min(options.segment_bytes / kStorePage * kStorePage, most), 4 * kStorePage);
}

}  // namespace

std::string_view StoreStateName(StoreState state) {
  switch (state) {
    case StoreState::kWriting:
      return "writing";
    case StoreState::kFull:
      return "full";
    case StoreState::kReadOnly:
      return "read-only";
    case StoreState::kDisabled:
      return "disabled";
  }
  return "";
}

bool PurgeFilter::Matches(const BlockOrigin& origin) const {
  return (!tenant || *tenant == origin.tenant) && (!cache_namespace || *cache_namespace == origin.cache_namespace) &&
         (!fingerprint || *fingerprint == origin.fingerprint);
}

BlockStore::BlockStore(std::unique_ptr<Disk> disk, const BlockStoreOptions& options, const StoreIdentity& identity)
    : disk_(std::move(disk)),
      options_(options),
      identity_(identity),
      segments_(*disk_, identity.segment_bytes, options.read_only) {
  if (!options.read_only) return;
  state_ = StoreState::kReadOnly;
  reason_ = "opened read-only";
}

BlockStore::~BlockStore() {
  Close();
}

absl::StatusOr<StoreIdentity> BlockStore::OpenIdentity(Disk& disk, const BlockStoreOptions& options, bool* reset) {
  absl::StatusOr<StoreIdentity> identity = ReadIdentity(disk);
  if (identity.ok()) return identity;
  if (options.read_only) {
    return absl::NotFoundError(Cat("no store here that can be read: ", std::string(identity.status().message())));
  }
  // Another version's, or damaged: what lies there means nothing to anybody any more.
  *reset = !absl::IsNotFound(identity.status());
  KVIST_ASSIGN_OR_RETURN(const std::vector<std::string> names, disk.List());
  for (const std::string& name : names) {
    if (SegmentNumber(name) > 0) KVIST_RETURN_IF_ERROR(disk.Unlink(name));
  }
  const StoreIdentity made{.id = NewId(options.id_seed), .segment_bytes = SegmentBytesFor(options)};
  KVIST_RETURN_IF_ERROR(WriteIdentity(disk, made));
  return made;
}

absl::StatusOr<std::unique_ptr<BlockStore>> BlockStore::Open(std::unique_ptr<Disk> disk,
                                                             const BlockStoreOptions& options) {
  KVIST_CHECK(options.carry_share >= 0 && options.carry_share < 1 && options.eviction != nullptr);
  if (!options.read_only) KVIST_RETURN_IF_ERROR(disk->Lock(kLockName));
  bool reset = false;
  KVIST_ASSIGN_OR_RETURN(const StoreIdentity identity, OpenIdentity(*disk, options, &reset));
  std::unique_ptr<BlockStore> store(new BlockStore(std::move(disk), options, identity));
  store->stats_.resets = reset ? 1 : 0;
  store->FindBlocks();
  return store;
}

void BlockStore::FindBlocks() {
  const absl::StatusOr<std::vector<std::string>> names = disk_->List();
  if (!names.ok()) return StopWriting(names.status());
  for (const std::string& name : *names) {
    const SegmentId id{SegmentNumber(name)};
    if (id.value == 0) continue;
    segments_.Add(id, 0);
    const absl::StatusOr<DiskFile> file = segments_.Use(id);
    if (!file.ok()) {  // A writer beside us has removed it since; or it is damaged beyond opening.
      ++stats_.read_errors;
      files_show_more_ = true;
      continue;
    }
    TakeSegment(id, ReadSegment(*disk_, *file, PlaceIn(id)));
    segments_.Release(id);
  }
  stats_.opened_blocks = index_.size();
  while (MayWrite() && segments_.used_bytes() > options_.size_max) {
    const std::optional<SegmentId> victim = PickVictim();
    if (!victim) break;
    DropSegment(*victim);
    if (segments_.Contains(*victim)) break;  // Its name cannot be removed.
  }
}

void BlockStore::TakeSegment(SegmentId id, const SegmentContents& contents) {
  stats_.read_errors += contents.read_errors;
  stats_.damaged_pages += contents.damaged_pages;
  if (!contents.sealed) ++stats_.unsealed_segments;
  for (const PlacedBlock& block : contents.blocks) {
    // Of two records of one block the later one stays: the other's segment was about to go.
    if (const BlockSlot earlier = index_.Find(block.facts.id); earlier != kNoBlock) {
      index_.Erase(earlier);
      files_show_more_ = true;
    }
    index_.Insert(block.facts, {.segment = id, .offset = block.offset});
  }
  segments_.Seal(id, contents.file_bytes);
  if (contents.sealed || !MayWrite()) return;
  if (contents.blocks.empty()) {
    if (const absl::Status status = segments_.Remove(id); !status.ok()) StopWriting(status);
    return;
  }
  // It is never written to again, so that what is in it needs to be looked for only once.
  const absl::Status status =
      WriteSegmentIndex(*disk_, *segments_.Use(id), PlaceIn(id), contents.blocks, contents.data_end);
  segments_.Release(id);
  if (!status.ok()) return StopWriting(status);
  segments_.Seal(id, contents.data_end + SegmentIndexBytes(contents.blocks.size()));
}

StoredRun BlockStore::Lookup(std::span<const ContentId> ids) const {
  StoredRun run;
  if (state_ == StoreState::kDisabled) return run;
  for (const ContentId& id : ids) {
    const BlockSlot block = index_.Find(id);
    if (block == kNoBlock) break;
    const BlockFacts facts = index_.FactsOf(block);
    ++run.blocks;
    run.payload_bytes += facts.payload_bytes;
    run.record_bytes += facts.record_bytes();
  }
  return run;
}

bool BlockStore::Contains(const ContentId& id) const {
  return state_ != StoreState::kDisabled && index_.Find(id) != kNoBlock;
}

void BlockStore::Touch(std::span<const ContentId> ids) {
  // The first one last: a block is worthless without those before it, so it never counts as used later than they are.
  for (size_t i = ids.size(); i-- > 0;) {
    if (const BlockSlot block = index_.Find(ids[i]); block != kNoBlock) index_.Touch(block);
  }
}

StoreTicket BlockStore::Read(std::span<const BlockRead> blocks, uint64_t group_bytes) {
  KVIST_CHECK(!closed_);
  const uint64_t ticket = next_ticket_++;
  const StoreIndex& index = state_ == StoreState::kDisabled ? nothing_ : index_;
  ReadState& state = reads_[ticket];
  state.job = std::make_unique<ReadJob>(index, identity_.id, blocks, group_bytes);
  SubmitReads(ticket, state.job->Plan(options_.read_bytes));
  TellReads(ticket);
  return {ticket};
}

void BlockStore::SubmitReads(uint64_t ticket, std::vector<ReadIo> ios) {
  for (ReadIo& io : ios) {
    const absl::StatusOr<DiskFile> file = segments_.Use(io.segment);
    if (!file.ok()) {
      ++stats_.read_errors;
      reads_.at(ticket).job->Arrive(io, 0, false);
      continue;
    }
    const uint64_t tag = next_tag_++;
    const DiskRequest request{
        .kind = DiskRequest::Kind::kRead, .file = *file, .offset = io.offset, .buffers = io.buffers, .tag = tag};
    disk_->Submit({&request, 1});
    stats_.drive_read_bytes += io.bytes;
    read_ios_[tag] = {.ticket = ticket, .io = std::move(io)};
  }
}

void BlockStore::FinishRead(const ReadRequest& request, const DiskCompletion& completion) {
  segments_.Release(request.io.segment);
  const bool ok = completion.status.ok();
  errors_in_a_row_ = ok ? 0 : errors_in_a_row_ + 1;
  if (!ok) ++stats_.read_errors;
  if (errors_in_a_row_ >= kErrorsMax && state_ != StoreState::kDisabled) {
    state_ = StoreState::kDisabled;
    reason_ = std::string(completion.status.message());
  }
  ReadJob& job = *reads_.at(request.ticket).job;
  if (!ok && request.io.parts.size() > 1 && state_ != StoreState::kDisabled) {
    SubmitReads(request.ticket, job.PlanAgain(request.io));  // One bad place costs no other block.
  } else {
    job.Arrive(request.io, completion.bytes, ok);
  }
  TellReads(request.ticket);
}

void BlockStore::TellReads(uint64_t ticket) {
  const auto it = reads_.find(ticket);
  const uint64_t ready = it->second.job->bytes_ready();
  const bool done = it->second.job->done();
  if (!done && (ready <= it->second.told || it->second.carry)) return;
  it->second.told = ready;
  ReadNews news{.ticket = {ticket}, .bytes_ready = ready, .done = done};
  if (done) {
    const ReadState state = std::move(it->second);
    reads_.erase(it);
    EndRead(state, news);
    if (state.carry) return FinishCarryRead(*state.job);
  }
  news_.reads.push_back(std::move(news));
}

void BlockStore::EndRead(const ReadState& state, ReadNews& news) {
  const ReadJob& job = *state.job;
  for (uint32_t i = 0; i < job.size(); ++i) {
    const ReadFault fault = job.FaultOf(i);
    if (fault == ReadFault::kNone) {
      if (state.carry) continue;
      ++stats_.read_blocks;
      stats_.read_bytes += job.PayloadOf(i).size();
      continue;
    }
    news.missing.push_back(i);
    if (!state.carry) ++stats_.missing[static_cast<size_t>(fault)];
    if (fault == ReadFault::kAbsent || fault == ReadFault::kTokens) continue;
    const BlockSlot block = index_.Find(job.IdOf(i));
    if (block == kNoBlock || index_.PlaceOf(block) != job.PlaceOf(i)) continue;
    index_.Erase(block);
    ++stats_.damaged_blocks;
    files_show_more_ = true;
  }
}

void BlockStore::Dispatch(const DiskCompletion& completion) {
  // Taken out first: what follows may put new ones in.
  if (auto read = read_ios_.extract(completion.tag)) return FinishRead(read.mapped(), completion);
  if (auto write = write_ios_.extract(completion.tag)) {
    segments_.Release(write.mapped().segment);
    return FinishWrite(write.mapped(), completion);
  }
  auto seal = seal_ios_.extract(completion.tag);
  KVIST_CHECK(!seal.empty());
  FinishSeal(seal.mapped(), completion);
}

void BlockStore::Poll(StoreNews& out, bool wait) {
  do {
    completions_.clear();
    disk_->Poll(completions_, wait && news_.reads.empty() && news_.writes.empty());
    for (const DiskCompletion& completion : completions_) Dispatch(completion);
  } while (wait && news_.reads.empty() && news_.writes.empty() && busy());
  std::ranges::move(news_.reads, std::back_inserter(out.reads));
  std::ranges::move(news_.writes, std::back_inserter(out.writes));
  news_ = {};
}

void BlockStore::Drain() {
  while (busy()) {
    completions_.clear();
    disk_->Poll(completions_, true);
    for (const DiskCompletion& completion : completions_) Dispatch(completion);
  }
}

void BlockStore::Close() {
  if (closed_) return;
  SealAll();
  closed_ = true;
}

void BlockStore::CheckDrive() {
  if (state_ == StoreState::kDisabled || closed_) return;
  if (const absl::Status status = disk_->CheckFolder(); !status.ok()) {
    state_ = StoreState::kDisabled;
    reason_ = std::string(status.message());
    return;
  }
  if (checks_to_wait_ > 0) --checks_to_wait_;
  if (state_ != StoreState::kFull || checks_to_wait_ > 0 || !CouldHaveRoom()) return;
  state_ = StoreState::kWriting;
  reason_.clear();
  StepSeals();
}

StoreFigures BlockStore::Figures() const {
  const bool full = IsDriveFull();
  return {.state = full ? StoreState::kFull : state_,
          .reason = full ? Cat(FormatByteSize(disk_->FreeBytes()), " are free on the drive, and ",
                               FormatByteSize(options_.free_bytes_min), " stay free for others")
                         : reason_,
          .totals = stats_,
          .blocks = index_.size(),
          .payload_bytes = index_.payload_bytes(),
          .record_bytes = index_.live_bytes(),
          .segments = segments_.size(),
          .segment_bytes = identity_.segment_bytes,
          .used_bytes = segments_.used_bytes(),
          .size_max = options_.size_max,
          .index_bytes = index_.memory_bytes(),
          .disk = disk_->report()};
}

std::vector<BlockStore::Listed> BlockStore::List() const {
  std::vector<Listed> listed;
  for (const SegmentId id : segments_.All()) {
    for (const BlockSlot block : index_.BlocksOf(id)) {
      listed.push_back({.facts = index_.FactsOf(block), .at = index_.PlaceOf(block), .use = index_.UseOf(block)});
    }
  }
  return listed;
}

void BlockStore::CheckInvariants() const {
  index_.CheckInvariants();
  KVIST_CHECK(stats_.opened_blocks + stats_.stored_blocks ==
              index_.size() + stats_.evicted_blocks + stats_.purged_blocks + stats_.damaged_blocks);
  uint64_t used = 0;
  for (const SegmentId id : segments_.All()) used += segments_.FileBytes(id);
  KVIST_CHECK(used == segments_.used_bytes());
  if (!busy()) KVIST_CHECK(reads_.empty() && writes_.empty() && !carry_ && writing_.empty());
}

}  // namespace kvist::kv
