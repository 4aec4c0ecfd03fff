#include "lab/host_tier.h"

#include <algorithm>

namespace kvist::lab {

kv::ColdRun HostTier::Lookup(std::span<const kv::ContentId> ids) {
  kv::ColdRun run;
  while (run.blocks < ids.size() && blocks_.contains(ids[run.blocks].low)) ++run.blocks;
  run.memory_blocks = run.blocks;
  run.memory_asked = static_cast<uint32_t>(ids.size());
  return run;
}

void HostTier::CountLookup(const kv::ColdRun& run) {
  totals_.lookup_blocks += run.memory_asked;
  totals_.hit_blocks += run.memory_blocks;
}

void HostTier::Forget(std::span<const kv::ContentId> ids) {
  for (const kv::ContentId& id : ids) {
    totals_.forgotten_blocks += blocks_.Remove(id.low) ? 1 : 0;
    for (auto& [done_ns, transfer] : under_way_) std::erase(transfer.arriving, id.low);
  }
}

kv::ColdTicket HostTier::Load(std::span<const kv::ColdRead> blocks, TimeNs now) {
  now_ns_ = now.value;
  Transfer transfer{.ticket = kv::ColdTicket{next_ticket_++}, .is_load = true};
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    if (!blocks_.contains(blocks[i].id.low)) transfer.missing.push_back(i);
  }
  // The beginning last: a block is worthless without those before it.
  for (size_t i = blocks.size(); i-- > 0;) {
    if (blocks_.contains(blocks[i].id.low)) blocks_.Use(blocks[i].id.low);
  }
  const uint64_t moved = blocks.size() - transfer.missing.size();
  totals_.read_blocks += moved;
  totals_.read_bytes += static_cast<uint64_t>(static_cast<double>(moved) * options_.block_bytes);
  totals_.missing_blocks += transfer.missing.size();
  const kv::ColdTicket ticket = transfer.ticket;
  const int64_t done_ns = to_device_.Take(now_ns_, static_cast<double>(moved) * options_.block_bytes);
  under_way_.emplace(done_ns, std::move(transfer));
  return ticket;
}

kv::ColdTicket HostTier::Store(std::span<const kv::ColdWrite> blocks, TimeNs now) {
  now_ns_ = now.value;
  Transfer transfer{.ticket = kv::ColdTicket{next_ticket_++}};
  for (const kv::ColdWrite& block : blocks) {
    if (blocks_.contains(block.id.low)) {
      blocks_.Use(block.id.low);  // It is there already.
    } else {
      transfer.arriving.push_back(block.id.low);
    }
  }
  const kv::ColdTicket ticket = transfer.ticket;
  const double bytes = static_cast<double>(transfer.arriving.size()) * options_.block_bytes;
  totals_.stored_blocks += transfer.arriving.size();
  totals_.stored_bytes += static_cast<uint64_t>(bytes);
  under_way_.emplace(to_host_.Take(now_ns_, bytes), std::move(transfer));
  return ticket;
}

void HostTier::Poll(TimeNs now, kv::ColdNews& out, bool wait) {
  now_ns_ = std::max(now_ns_, now.value);
  while (!under_way_.empty() && (wait || under_way_.begin()->first <= now.value)) {
    Transfer& transfer = under_way_.begin()->second;
    if (transfer.is_load) {
      out.loads.push_back({transfer.ticket, std::move(transfer.missing)});
    } else {
      out.stores.push_back(transfer.ticket);
    }
    for (size_t i = transfer.arriving.size(); i-- > 0;) blocks_.Use(transfer.arriving[i]);
    for (; blocks_.size() > options_.blocks_max; ++totals_.evicted_blocks) blocks_.TakeOldest();
    under_way_.erase(under_way_.begin());
  }
}

std::vector<kv::TierFigures> HostTier::Figures() const {
  kv::TierFigures figures = totals_;
  figures.blocks = blocks_.size();
  figures.bytes = static_cast<uint64_t>(static_cast<double>(figures.blocks) * options_.block_bytes);
  figures.bytes_max = static_cast<uint64_t>(static_cast<double>(options_.blocks_max) * options_.block_bytes);
  return {figures};
}

}  // namespace kvist::lab
