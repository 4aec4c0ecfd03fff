#pragma once

/// @file
/// What all workers of a simulated world have ever stored under each name, and a look at everything that comes back: a
/// block that is read is exactly the block that was written, and none that was forgotten. Threads: one.

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/hash128.h"
#include "base/status.h"
#include "kv/cold_blocks.h"
#include "kv/frame_arena.h"
#include "lab/world_log.h"

namespace kvist::lab {

/// Bytes by content id. Equal ids mean equal bytes on every worker.
class BlockRegistry {
 public:
  explicit BlockRegistry(WorldLog& log) : log_(log) {}
  void Stored(const kv::ContentId& id, std::span<const std::byte> bytes) {
    const Hash128 hash = HashOf(bytes);
    const auto [it, inserted] = blocks_.try_emplace({id.low, id.high}, hash);
    if (!inserted && !(it->second == hash)) log_.Report("drive", "two blocks of one name have different bytes");
  }
  void Read(const kv::ContentId& id, std::span<const std::byte> bytes) {
    const auto it = blocks_.find({id.low, id.high});
    if (it == blocks_.end()) {
      log_.Report("drive", "a block is read that was never written");
    } else if (!(it->second == HashOf(bytes))) {
      log_.Report("drive", "a block that is read is not the one that was written");
    }
  }

 private:
  WorldLog& log_;
  std::map<std::pair<uint64_t, uint64_t>, Hash128> blocks_;
};

/// Names of the blocks that a worker was told to forget, and has not stored again. They outlive its process, as the
/// drive does.
class ForgottenBlocks {
 public:
  explicit ForgottenBlocks(WorldLog& log) : log_(log) {}
  void Forget(const kv::ContentId& id) {
    if (!excused_ && !dying_) names_.insert(id.low);
  }
  void Stored(const kv::ContentId& id) { names_.erase(id.low); }
  bool Has(const kv::ContentId& id) const { return names_.contains(id.low); }
  void Read() { log_.Report("forgotten", "a block is read that was to be forgotten"); }
  /// What a process does that is being killed does not count.
  void SetDying(bool dying) { dying_ = dying; }
  /// The drive has failed: nothing can be promised any more.
  void Excuse() {
    excused_ = true;
    names_.clear();
  }

 private:
  WorldLog& log_;
  absl::flat_hash_set<uint64_t> names_;
  bool excused_ = false, dying_ = false;
};

class CheckedColdBlocks final : public kv::ColdBlocks {
 public:
  CheckedColdBlocks(kv::ColdBlocks& inner, const kv::FrameArena& arena, BlockRegistry& registry,
                    ForgottenBlocks& forgotten)
      : inner_(inner), arena_(arena), registry_(registry), forgotten_(forgotten) {}

  kv::ColdRun Lookup(std::span<const kv::ContentId> ids) override { return inner_.Lookup(ids); }
  void CountLookup(const kv::ColdRun& run) override { inner_.CountLookup(run); }
  kv::ColdPlaces PlacesFor(const kv::ContentId& id) const override { return inner_.PlacesFor(id); }
  double LoadNs(const kv::ColdRun& run) const override { return inner_.LoadNs(run); }
  bool IsWriting() const override { return inner_.IsWriting(); }
  kv::ColdTicket Load(std::span<const kv::ColdRead> blocks, TimeNs now) override {
    const kv::ColdTicket ticket = inner_.Load(blocks, now);
    std::vector<Reading>& readings = loads_[ticket];
    for (const kv::ColdRead& block : blocks) readings.push_back({block.id, block.frame, forgotten_.Has(block.id)});
    return ticket;
  }
  kv::ColdTicket Store(std::span<const kv::ColdWrite> blocks, TimeNs now) override {
    for (const kv::ColdWrite& block : blocks) {
      registry_.Stored(block.id, BytesOf(block.frame));
      forgotten_.Stored(block.id);
    }
    return inner_.Store(blocks, now);
  }
  void Poll(TimeNs now, kv::ColdNews& out, bool wait) override {
    const size_t before = out.loads.size();
    inner_.Poll(now, out, wait);
    for (size_t i = before; i < out.loads.size(); ++i) {
      const std::vector<Reading> readings = loads_.extract(out.loads[i].ticket).mapped();
      // What comes after the first block that is missing is not used.
      const size_t there = out.loads[i].missing.empty() ? readings.size() : out.loads[i].missing.front();
      for (size_t block = 0; block < there; ++block) {
        registry_.Read(readings[block].id, BytesOf(readings[block].frame));
        if (readings[block].forgotten) forgotten_.Read();
      }
    }
  }
  bool busy() const override { return inner_.busy(); }
  void Close(const std::function<bool()>& keep) override { inner_.Close(keep); }
  void Forget(std::span<const kv::ContentId> ids) override {
    inner_.Forget(ids);
    for (const kv::ContentId& id : ids) forgotten_.Forget(id);
  }
  std::vector<kv::TierFigures> Figures() const override { return inner_.Figures(); }
  void Advance(TimeNs now) override { inner_.Advance(now); }
  std::vector<kv::TierHolding> Holdings() const override { return inner_.Holdings(); }

 private:
  struct Reading {
    kv::ContentId id;
    FrameId frame;
    bool forgotten;  ///< Before the load began.
  };
  std::span<const std::byte> BytesOf(FrameId frame) const { return {arena_.Frame(frame), arena_.frame_bytes()}; }

  kv::ColdBlocks& inner_;
  const kv::FrameArena& arena_;
  BlockRegistry& registry_;
  ForgottenBlocks& forgotten_;
  absl::flat_hash_map<kv::ColdTicket, std::vector<Reading>> loads_;
};

}  // namespace kvist::lab
