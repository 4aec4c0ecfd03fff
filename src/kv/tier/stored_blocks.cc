#include "kv/tier/stored_blocks.h"

#include <numeric>

namespace kvist::kv {
namespace {

/// From the first request to the first answer, whatever is read.
constexpr double kStartNs = 200e3;
/// The drive is looked at this often.
constexpr int64_t kCheckNs = 1'000'000'000;

}  // namespace

StoredBlocks::StoredBlocks(std::unique_ptr<BlockStore> store, const FrameArena& arena,
                           const StoredBlocksOptions& options)
    : store_(std::move(store)), arena_(arena), options_(options), rate_(options.read_bytes_per_s) {}

ColdRun StoredBlocks::Lookup(std::span<const ContentId> ids) {
  const StoredRun run = store_->Lookup(ids);
  return {.blocks = run.blocks, .bytes = run.record_bytes, .drive_asked = static_cast<uint32_t>(ids.size())};
}

void StoredBlocks::CountLookup(const ColdRun& run) {
  lookup_blocks_ += run.drive_asked;
  hit_blocks_ += run.blocks - run.memory_blocks;
}

double StoredBlocks::LoadNs(const ColdRun& run) const {
  return kStartNs + static_cast<double>(run.bytes) / rate_.bytes_per_s() * 1e9;
}

ColdTicket StoredBlocks::Load(std::span<const ColdRead> blocks, TimeNs now) {
  std::vector<BlockRead> reads;
  std::vector<ContentId> ids;
  for (const ColdRead& block : blocks) {
    reads.push_back({.id = block.id, .into = BytesOf(block.frame), .tokens = block.tokens});
    ids.push_back(block.id);
  }
  store_->Touch(ids);
  const StoreTicket ticket = store_->Read(reads);
  readings_[ticket] = {.bytes = blocks.size() * arena_.frame_bytes(), .since = now, .alone = readings_.empty()};
  return {ticket.value};
}

ColdTicket StoredBlocks::Store(std::span<const ColdWrite> blocks, TimeNs /*now*/) {
  std::vector<const std::byte*> bytes;
  for (const ColdWrite& block : blocks) bytes.push_back(arena_.Frame(block.frame));
  return StoreFrom(blocks, bytes);
}

ColdTicket StoredBlocks::StoreFrom(std::span<const ColdWrite> blocks, std::span<const std::byte* const> bytes) {
  std::vector<BlockWrite> writes;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const ColdWrite& block = blocks[i];
    writes.push_back({.id = block.id,
                      .parent = block.parent,
                      .origin = {.fingerprint = options_.fingerprint,
                                 .cache_namespace = block.cache_namespace,
                                 .tenant = block.tenant,
                                 .codec = options_.codec},
                      .ops_signature = block.ops_signature,
                      .tokens = block.tokens,
                      .payload = {bytes[i], arena_.frame_bytes()}});
  }
  return {store_->Write(writes).value};
}

void StoredBlocks::Poll(TimeNs now, ColdNews& out, bool wait) {
  if (now >= check_due_) {
    check_due_ = now + kCheckNs;
    store_->CheckDrive();
  }
  store_->Poll(news_, wait);
  for (ReadNews& read : news_.reads) {
    if (!read.done) continue;
    const auto reading = readings_.extract(read.ticket);
    if (read.missing.empty() && readings_.empty()) rate_.Learn(reading.mapped(), now);
    out.loads.push_back({.ticket = {read.ticket.value}, .missing = std::move(read.missing)});
  }
  for (const WriteNews& write : news_.writes) out.stores.push_back({write.ticket.value});
  news_.reads.clear();
  news_.writes.clear();
}

void StoredBlocks::Forget(std::span<const ContentId> ids) {
  (void)store_->Forget(ids);  // A store that could not says why it writes no more.
}

std::vector<TierHolding> StoredBlocks::Holdings() const {
  // What another process has written is that one's to count.
  if (store_->read_only()) return {};
  return store_->index().ledger().Holdings(kDriveTier);
}

std::vector<TierFigures> StoredBlocks::Figures() const {
  const StoreFigures figures = store_->Figures();
  const StoreStats& totals = figures.totals;
  const auto of = [&](ReadFault fault) { return totals.missing[static_cast<size_t>(fault)]; };
  const uint64_t missing = std::accumulate(totals.missing.begin(), totals.missing.end(), uint64_t{0});
  return {{.name = std::string(kDriveTier),
           .state = std::string(StoreStateName(figures.state)),
           .reason = figures.reason,
           .codec = "none",
           .blocks = figures.blocks,
           .bytes = figures.used_bytes,
           .bytes_max = figures.size_max,
           .lookup_blocks = lookup_blocks_,
           .hit_blocks = hit_blocks_,
           .read_blocks = totals.read_blocks,
           .read_bytes = totals.read_bytes,
           .missing_blocks = missing,
           .stored_blocks = totals.stored_blocks,
           .stored_bytes = totals.stored_bytes,
           .refused_blocks = totals.refused_blocks,
           .evicted_blocks = totals.evicted_blocks,
           .forgotten_blocks = totals.purged_blocks,
           .faults = missing - of(ReadFault::kAbsent) - of(ReadFault::kError) + totals.read_errors +
                     totals.write_errors + totals.sync_errors,
           .drive_read_bytes = totals.drive_read_bytes,
           .drive_written_bytes = totals.drive_written_bytes}};
}

}  // namespace kvist::kv
