#pragma once

/// @file
/// Memory of the host below an emulated device, in virtual time: which blocks are there is real, how long they take to
/// come and go is a model. What leaves the device's memory goes there, and the block that was used longest ago gives
/// way. Both directions of the link are queues of their own (cost/link_queue.h), as PCI Express is full duplex; what is
/// moved together is one transfer. Threads: none shared. Non-goals: bytes, drives, whose blocks they are, what steps
/// lose to transfers beside them.

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "cost/link_queue.h"
#include "kv/cold_blocks.h"
#include "lab/lru.h"

namespace kvist::lab {

struct HostTierOptions {
  uint64_t blocks_max = 0;
  double block_bytes = 0;  ///< Of one device: each has a link to its own host.
  device::Link link;
};

class HostTier final : public kv::ColdBlocks {
 public:
  explicit HostTier(const HostTierOptions& options)
      : options_(options), to_host_(options.link), to_device_(options.link) {}

  kv::ColdRun Lookup(std::span<const kv::ContentId> ids) override;
  void CountLookup(const kv::ColdRun& run) override;
  kv::ColdPlaces PlacesFor(const kv::ContentId&) const override { return {.memory = options_.blocks_max > 0}; }
  double LoadNs(const kv::ColdRun& run) const override {
    return static_cast<double>(to_device_.WaitNs(now_ns_) + to_device_.ServiceNs(run.blocks * options_.block_bytes));
  }
  bool IsWriting() const override { return options_.blocks_max > 0; }
  kv::ColdTicket Load(std::span<const kv::ColdRead> blocks, TimeNs now) override;
  kv::ColdTicket Store(std::span<const kv::ColdWrite> blocks, TimeNs now) override;
  /// @param wait  everything is done: virtual time does not pass while somebody waits
  void Poll(TimeNs now, kv::ColdNews& out, bool wait) override;
  bool busy() const override { return !under_way_.empty(); }
  void Close(const std::function<bool()>&) override {}
  void Forget(std::span<const kv::ContentId> ids) override;
  std::vector<kv::TierFigures> Figures() const override;
  void Advance(TimeNs) override {}
  std::vector<kv::TierHolding> Holdings() const override { return {}; }

  uint64_t block_bytes() const { return static_cast<uint64_t>(options_.block_bytes); }
  /// When the next transfer has ended; INT64_MAX = none is under way.
  int64_t NextDoneNs() const { return under_way_.empty() ? INT64_MAX : under_way_.begin()->first; }
  const cost::LinkUse& to_host() const { return to_host_.use(); }
  const cost::LinkUse& to_device() const { return to_device_.use(); }

 private:
  struct Transfer {
    kv::ColdTicket ticket;
    bool is_load = false;
    std::vector<uint32_t> missing;
    std::vector<uint64_t> arriving;  ///< Blocks that are in the host's memory from then on.
  };

  const HostTierOptions options_;
  cost::LinkQueue to_host_, to_device_;
  Lru blocks_;                                  ///< By the lower half of the content's id.
  std::multimap<int64_t, Transfer> under_way_;  ///< By when they have ended.
  int64_t now_ns_ = 0;                          ///< As far as is known.
  uint64_t next_ticket_ = 1;
  kv::TierFigures totals_{.name = "host", .state = "writing", .codec = "none"};
};

}  // namespace kvist::lab
