#include "kv/tier/tier_stack.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "platform/disk.h"

namespace kvist::kv {
namespace {

/// Blocks of cold memory that are written to the drive at once as it closes.
constexpr size_t kSavedAtOnce = 32;

}  // namespace

TierStack::TierStack(std::unique_ptr<RamBlocks> memory, std::unique_ptr<StoredBlocks> drive, const FrameArena& arena,
                     const TierStackOptions& options)
    : memory_(std::move(memory)), drive_(std::move(drive)), arena_(arena), options_(options) {}

ColdRun TierStack::Lookup(std::span<const ContentId> ids) {
  const std::vector<bool> here = memory_->Lookup(ids);
  ColdRun run{.memory_asked = static_cast<uint32_t>(ids.size())};
  while (run.blocks < ids.size()) {
    if (here[run.blocks]) {
      ++run.blocks;
      ++run.memory_blocks;
      continue;
    }
    if (drive_ == nullptr) break;
    const auto begin = here.begin() + run.blocks;
    const auto count = static_cast<size_t>(std::find(begin, here.end(), true) - begin);
    const ColdRun stored = drive_->Lookup(ids.subspan(run.blocks, count));
    run.blocks += stored.blocks;
    run.bytes += stored.bytes;
    run.drive_asked += stored.drive_asked;
    if (stored.blocks < count) break;
  }
  return run;
}

void TierStack::CountLookup(const ColdRun& run) {
  memory_->CountLookup(run.memory_asked, run.memory_blocks);
  if (drive_ != nullptr) drive_->CountLookup(run);
}

ColdPlaces TierStack::PlacesFor(const ContentId& id) const {
  return {.memory = true, .drive = drive_ != nullptr && drive_->PlacesFor(id).drive};
}

double TierStack::LoadNs(const ColdRun& run) const {
  if (drive_ == nullptr) return memory_->LoadNs(run.blocks);
  const double memory_ns = run.memory_blocks > 0 ? memory_->LoadNs(run.memory_blocks) : 0;
  return run.bytes == 0 ? memory_ns : std::max(memory_ns, drive_->LoadNs(run));
}

void TierStack::Await(Part part, ColdTicket own, ColdTicket whole) {
  (part == Part::kMemory ? of_memory_ : of_drive_)[own] = whole;
  ++transfers_[whole].parts;
}

ColdTicket TierStack::Load(std::span<const ColdRead> blocks, TimeNs now) {
  const ColdTicket whole{next_ticket_++};
  Transfer& transfer = transfers_[whole];
  transfer.load = true;
  std::vector<ColdRead> memory, drive;
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    const bool here = drive_ == nullptr || memory_->Contains(blocks[i].id);
    (here ? memory : drive).push_back(blocks[i]);
    (here ? transfer.memory_of : transfer.drive_of).push_back(i);
  }
  const uint64_t frame_bytes = arena_.frame_bytes(), drive_bytes = drive.size() * frame_bytes;
  // A load of nothing is one of cold memory, which says so at the next Poll.
  if (!memory.empty() || drive.empty()) {
    std::optional<TransferPacer> pacer;
    if (options_.paced && !drive.empty()) {
      const double drive_ns = drive_->LoadNs({.blocks = static_cast<uint32_t>(drive.size()), .bytes = drive_bytes});
      pacer.emplace(PacerOptions{.memory_bytes_per_s = memory_->copy_bytes_per_s(),
                                 .drive_bytes_per_s = static_cast<double>(drive_bytes) / drive_ns * 1e9,
                                 .burst_bytes = frame_bytes},
                    memory.size() * frame_bytes, drive_bytes, now);
    }
    const bool paced = pacer.has_value();
    const ColdTicket own = memory_->Load(memory, now, std::move(pacer));
    if (paced) transfer.paced = own;
    Await(Part::kMemory, own, whole);
  }
  if (!drive.empty()) Await(Part::kDrive, drive_->Load(drive, now), whole);
  return whole;
}

ColdTicket TierStack::Store(std::span<const ColdWrite> blocks, TimeNs now) {
  const ColdTicket whole{next_ticket_++};
  std::vector<ColdWrite> memory, drive;
  for (const ColdWrite& block : blocks) {
    if (block.to.memory) memory.push_back(block);
    if (block.to.drive && drive_ != nullptr) drive.push_back(block);
  }
  if (!memory.empty() || drive.empty()) Await(Part::kMemory, memory_->Store(memory), whole);
  if (!drive.empty()) Await(Part::kDrive, drive_->Store(drive, now), whole);
  return whole;
}

void TierStack::EndPart(Part part, ColdTicket own, const std::vector<uint32_t>& missing, ColdNews& out) {
  const auto of = (part == Part::kMemory ? of_memory_ : of_drive_).extract(own);
  KVIST_CHECK(!of.empty());
  const auto it = transfers_.find(of.mapped());
  KVIST_CHECK(it != transfers_.end());
  Transfer& transfer = it->second;
  const std::vector<uint32_t>& indices = part == Part::kMemory ? transfer.memory_of : transfer.drive_of;
  for (const uint32_t index : missing) transfer.missing.push_back(indices[index]);
  if (part == Part::kDrive && transfer.paced) memory_->Hasten(*transfer.paced);
  if (--transfer.parts > 0) return;
  if (transfer.load) {
    std::ranges::sort(transfer.missing);
    out.loads.push_back({.ticket = of.mapped(), .missing = std::move(transfer.missing)});
  } else {
    out.stores.push_back(of.mapped());
  }
  transfers_.erase(it);
}

void TierStack::Take(Part part, ColdNews& news, ColdNews& out) {
  for (const ColdNews::Load& load : news.loads) EndPart(part, load.ticket, load.missing, out);
  for (const ColdTicket store : news.stores) EndPart(part, store, {}, out);
  news = {};
}

void TierStack::Poll(TimeNs now, ColdNews& out, bool wait) {
  const size_t before = out.loads.size() + out.stores.size();
  do {
    // The drive first, so that copies that waited for it go on at once.
    const bool drive_waits = wait && !memory_->busy();
    if (drive_ != nullptr) {
      drive_->Poll(now, drive_news_, drive_waits);
      Take(Part::kDrive, drive_news_, out);
    }
    memory_->Poll(now, memory_news_, wait);
    Take(Part::kMemory, memory_news_, out);
  } while (wait && busy() && out.loads.size() + out.stores.size() == before);
}

/// What cold memory alone has goes to the drive, in the order of leaving hot memory, last ones first.
void TierStack::SaveMemory(const std::function<bool()>& keep) {
  const uint64_t frame_bytes = arena_.frame_bytes();
  const DiskMemory bytes(kSavedAtOnce * frame_bytes);
  std::vector<ColdWrite> writes;
  std::vector<const std::byte*> from;
  const auto flush = [&] {
    if (writes.empty()) return;
    ColdNews news;
    drive_->StoreFrom(writes, from);
    while (news.stores.empty() && drive_->busy()) drive_->Poll(TimeNs{0}, news, /*wait=*/true);
    writes.clear();
    from.clear();
  };
  memory_->Visit([&](const RamBlocks::Kept& kept) {
    if (!drive_->IsWriting()) return false;
    if (!drive_->PlacesFor(kept.facts.id).drive) return true;
    if (!keep()) return false;
    std::byte* const to = bytes.data() + writes.size() * frame_bytes;
    memory_->codec().Decode(kept.encoded, to);
    writes.push_back(kept.facts);
    from.push_back(to);
    if (writes.size() == kSavedAtOnce) flush();
    return true;
  });
  flush();
}

void TierStack::Close(const std::function<bool()>& keep) {
  ColdNews news;
  while (busy()) Poll(TimeNs{0}, news, /*wait=*/true);
  if (drive_ == nullptr) return;
  SaveMemory(keep);
  drive_->Close(keep);
}

void TierStack::Forget(std::span<const ContentId> ids) {
  memory_->Forget(ids);
  if (drive_ != nullptr) drive_->Forget(ids);
}

void TierStack::Advance(TimeNs now) {
  memory_->Advance(now);
  if (drive_ != nullptr) drive_->Advance(now);
}

std::vector<TierHolding> TierStack::Holdings() const {
  std::vector<TierHolding> holdings = memory_->Holdings();
  if (drive_ != nullptr) std::ranges::move(drive_->Holdings(), std::back_inserter(holdings));
  return holdings;
}

std::vector<TierFigures> TierStack::Figures() const {
  std::vector<TierFigures> figures = {memory_->Figures()};
  if (drive_ != nullptr) {
    const std::vector<TierFigures> below = drive_->Figures();
    figures.insert(figures.end(), below.begin(), below.end());
    // What cold memory alone had is written as it gives it back.
    for (TierFigures& tier : figures) tier.lossless &= memory_->codec().lossless();
  }
  return figures;
}

}  // namespace kvist::kv
