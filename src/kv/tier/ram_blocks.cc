#include "kv/tier/ram_blocks.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"

namespace kvist::kv {
namespace {

/// From asking to the first copy.
constexpr double kStartNs = 20e3;

}  // namespace

absl::StatusOr<std::unique_ptr<RamBlocks>> RamBlocks::Create(const FrameArena& arena, std::unique_ptr<FrameCodec> codec,
                                                             const RamBlocksOptions& options) {
  const uint64_t slots = std::min<uint64_t>(options.bytes_max / codec->encoded_bytes(), kNone - 1);
  KVIST_CHECK(slots > 0);
  KVIST_ASSIGN_OR_RETURN(AnonymousMemory memory, AnonymousMemory::Map(slots * codec->encoded_bytes()));
  return std::unique_ptr<RamBlocks>(
      new RamBlocks(arena, std::move(codec), options, std::move(memory), static_cast<uint32_t>(slots)));
}

RamBlocks::RamBlocks(const FrameArena& arena, std::unique_ptr<FrameCodec> codec, const RamBlocksOptions& options,
                     AnonymousMemory memory, uint32_t slots)
    : arena_(arena),
      codec_(std::move(codec)),
      options_(options),
      memory_(std::move(memory)),
      slots_(slots),
      rate_(options.copy_bytes_per_s) {
  free_.reserve(slots);
  for (uint32_t slot = slots; slot-- > 0;) free_.push_back(slot);
  index_.reserve(slots);
  totals_.name = std::string(kColdMemoryTier);
  totals_.state = "writing";
  totals_.codec = std::string(codec_->name());
  totals_.lossless = codec_->lossless();
  totals_.bytes_max = slots * codec_->encoded_bytes();
}

uint32_t RamBlocks::Find(const ContentId& id) const {
  const auto it = index_.find(id.low);
  if (it == index_.end()) return kNone;
  const Slot& slot = slots_[it->second];
  return slot.used && slot.id == id ? it->second : kNone;
}

std::vector<bool> RamBlocks::Lookup(std::span<const ContentId> ids) const {
  std::vector<bool> found;
  found.reserve(ids.size());
  for (const ContentId& id : ids) found.push_back(Contains(id));
  return found;
}

void RamBlocks::Unlink(uint32_t slot) {
  const Slot& from = slots_[slot];
  (from.older == kNone ? oldest_ : slots_[from.older].newer) = from.newer;
  (from.newer == kNone ? newest_ : slots_[from.newer].older) = from.older;
}

void RamBlocks::LinkNewest(uint32_t slot) {
  slots_[slot].older = newest_;
  slots_[slot].newer = kNone;
  (newest_ == kNone ? oldest_ : slots_[newest_].newer) = slot;
  newest_ = slot;
}

/// A free one, or that of the block that left hot memory longest ago; kNone while all are being copied.
uint32_t RamBlocks::TakeSlot() {
  if (!free_.empty()) {
    const uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  uint32_t slot = oldest_;
  while (slot != kNone && slots_[slot].readers > 0) slot = slots_[slot].newer;
  if (slot == kNone) return kNone;
  Remove(slot);
  slots_[slot] = {};
  ++totals_.evicted_blocks;
  return slot;
}

/// Nobody finds the block of a slot any more. REQUIRES: used.
void RamBlocks::Remove(uint32_t slot) {
  Unlink(slot);
  index_.erase(slots_[slot].id.low);
  slots_[slot].used = false;
  --totals_.blocks;
  ledger_.Remove(slots_[slot].tenant, codec_->encoded_bytes());
}

void RamBlocks::Free(uint32_t slot) {
  slots_[slot] = {};
  free_.push_back(slot);
}

void RamBlocks::Forget(std::span<const ContentId> ids) {
  for (const ContentId& id : ids) {
    const auto it = index_.find(id.low);
    if (it == index_.end() || slots_[it->second].id != id) continue;
    const uint32_t index = it->second;
    Slot& slot = slots_[index];
    ++totals_.forgotten_blocks;
    slot.forgotten = true;
    if (!slot.used) {
      index_.erase(it);
      slot.filling = false;  // Whoever is to fill it frees it.
      continue;
    }
    Remove(index);
    if (slot.readers == 0) Free(index);
  }
}

void RamBlocks::Fill(uint32_t slot, const ColdWrite& block) {
  Slot& to = slots_[slot];
  to.id = block.id;
  to.parent = block.parent;
  to.cache_namespace = block.cache_namespace;
  to.ops_signature = block.ops_signature;
  to.tenant = block.tenant;
  to.tokens_count = static_cast<uint32_t>(block.tokens.size());
  std::ranges::copy(block.tokens, to.tokens.begin());
  to.filling = true;
  index_[block.id.low] = slot;
}

ColdTicket RamBlocks::Store(std::span<const ColdWrite> blocks) {
  Transfer transfer{.ticket = {next_ticket_++}};
  // The last one first: a block is worthless without those before it, so it never counts as younger than they are.
  for (size_t i = blocks.size(); i-- > 0;) {
    const ColdWrite& block = blocks[i];
    KVIST_CHECK(!block.tokens.empty() && block.tokens.size() <= kBlockTokens);
    if (const auto it = index_.find(block.id.low); it != index_.end()) {
      if (!slots_[it->second].used) continue;  // Under way.
      Unlink(it->second);
      LinkNewest(it->second);
      continue;
    }
    const uint32_t slot = TakeSlot();
    if (slot == kNone) {
      ++totals_.refused_blocks;
      continue;
    }
    Fill(slot, block);
    transfer.copies.push_back({slot, block.frame});
  }
  stores_.push_back(std::move(transfer));
  return stores_.back().ticket;
}

bool RamBlocks::Holds(const Slot& slot, const ColdRead& block) const {
  return std::ranges::equal(std::span(slot.tokens).first(slot.tokens_count), block.tokens);
}

ColdTicket RamBlocks::Load(std::span<const ColdRead> blocks, TimeNs now, std::optional<TransferPacer> pacer) {
  Transfer transfer{.ticket = {next_ticket_++}, .pacer = std::move(pacer)};
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    const uint32_t slot = Find(blocks[i].id);
    if (slot == kNone || !Holds(slots_[slot], blocks[i])) {
      ++totals_.missing_blocks;
      transfer.missing.push_back(i);
      continue;
    }
    ++slots_[slot].readers;
    transfer.copies.push_back({slot, blocks[i].frame});
  }
  transfer.sample = {.bytes = transfer.copies.size() * arena_.frame_bytes(),
                     .since = now,
                     .alone = loads_.empty() && !transfer.pacer.has_value()};
  loads_.push_back(std::move(transfer));
  return loads_.back().ticket;
}

void RamBlocks::Hasten(ColdTicket ticket) {
  const auto it = std::ranges::find(loads_, ticket, &Transfer::ticket);
  if (it != loads_.end()) it->pacer.reset();
}

void RamBlocks::MakeCopy(const Copy& copy, bool load) {
  Slot& slot = slots_[copy.slot];
  if (load) {
    codec_->Decode(BytesOf(copy.slot), arena_.Frame(copy.frame));
    ++totals_.read_blocks;
    totals_.read_bytes += arena_.frame_bytes();
    if (--slot.readers == 0 && slot.forgotten) Free(copy.slot);
    return;
  }
  if (slot.forgotten) return Free(copy.slot);
  codec_->Encode(arena_.Frame(copy.frame), BytesOf(copy.slot));
  slot.filling = false;
  slot.used = true;
  LinkNewest(copy.slot);
  ++totals_.blocks;
  ++totals_.stored_blocks;
  totals_.stored_bytes += codec_->encoded_bytes();
  ledger_.Add(slot.tenant, codec_->encoded_bytes());
}

/// @return whether nothing of it is left to be done.
bool RamBlocks::Advance(Transfer& transfer, bool load, bool wait, uint64_t& left, TimeNs now) {
  while (transfer.next < transfer.copies.size()) {
    if (!wait && left == 0) return false;
    if (!wait && transfer.pacer && transfer.pacer->MayCopy(now) == 0) return false;
    MakeCopy(transfer.copies[transfer.next++], load);
    if (transfer.pacer) transfer.pacer->Copied(arena_.frame_bytes());
    left -= std::min(left, arena_.frame_bytes());
  }
  return true;
}

void RamBlocks::Poll(TimeNs now, ColdNews& out, bool wait) {
  uint64_t left = options_.slice_bytes;
  for (auto it = loads_.begin(); it != loads_.end();) {
    if (!Advance(*it, /*load=*/true, wait, left, now)) {
      ++it;
      continue;
    }
    ColdNews::Load load{.ticket = it->ticket, .missing = std::move(it->missing)};
    const TransferRate::Sample sample = it->sample;
    it = loads_.erase(it);
    if (loads_.empty()) rate_.Learn(sample, now);
    out.loads.push_back(std::move(load));
  }
  for (auto it = stores_.begin(); it != stores_.end();) {
    if (!Advance(*it, /*load=*/false, wait, left, now)) break;
    out.stores.push_back(it->ticket);
    it = stores_.erase(it);
  }
}

double RamBlocks::LoadNs(uint32_t blocks) const {
  return kStartNs + static_cast<double>(blocks * arena_.frame_bytes()) / rate_.bytes_per_s() * 1e9;
}

TierFigures RamBlocks::Figures() const {
  TierFigures figures = totals_;
  figures.bytes = figures.blocks * codec_->encoded_bytes();
  return figures;
}

void RamBlocks::Visit(const std::function<bool(const Kept&)>& visit) const {
  for (uint32_t index = newest_; index != kNone; index = slots_[index].older) {
    const Slot& slot = slots_[index];
    const Kept kept = {.facts = {.id = slot.id,
                                 .parent = slot.parent,
                                 .cache_namespace = slot.cache_namespace,
                                 .ops_signature = slot.ops_signature,
                                 .tenant = slot.tenant,
                                 .tokens = std::span(slot.tokens).first(slot.tokens_count)},
                       .encoded = BytesOf(index)};
    if (!visit(kept)) return;
  }
}

void RamBlocks::CheckInvariants() const {
  size_t linked = 0, filling = 0, used = 0, forgotten = 0;
  for (uint32_t index = oldest_; index != kNone; index = slots_[index].newer) {
    KVIST_CHECK(slots_[index].used && !slots_[index].filling && ++linked <= slots_.size());
  }
  for (const Slot& slot : slots_) {
    filling += slot.filling ? 1 : 0;
    used += slot.used ? 1 : 0;
    forgotten += slot.forgotten ? 1 : 0;
    KVIST_CHECK(int{slot.used} + int{slot.filling} + int{slot.forgotten} <= 1);
    KVIST_CHECK(slot.used || slot.forgotten || slot.readers == 0);
    if (slot.used || slot.filling) KVIST_CHECK(slots_[index_.at(slot.id.low)].id == slot.id);
  }
  KVIST_CHECK(linked == used && used == totals_.blocks && index_.size() == used + filling);
  KVIST_CHECK(free_.size() + used + filling + forgotten == slots_.size());
  KVIST_CHECK(ledger_.bytes() == used * codec_->encoded_bytes());
}

}  // namespace kvist::kv
