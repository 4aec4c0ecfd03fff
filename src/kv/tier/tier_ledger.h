#pragma once

/// @file
/// For how long whose blocks took how much of a tier. A byte is its owner's from the moment its block is there until it
/// is gone, so the owners' integrals add up to that of all the blocks. Engine thread only. Non-goals: who owns a block
/// (ColdWrite::tenant), money, hot memory (kv/hold_ledger.h).

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "base/clock.h"
#include "kv/cold_blocks.h"

namespace kvist::kv {

class TierLedger {
 public:
  /// Time goes on; between two calls everything counts as done at the first. The first call begins: what is there by
  /// then counts from then on. A time that lies back changes nothing.
  void Advance(TimeNs now) {
    if (now_ == kTimeNever) {
      for (auto& [owner, entry] : entries_) entry.since = now;
      now_ = now;
    }
    now_ = std::max(now_, now);
  }

  void Add(TenantId owner, uint64_t bytes) { EntryOf(owner).bytes += bytes; }
  void Remove(TenantId owner, uint64_t bytes) {
    Entry& entry = EntryOf(owner);
    KVIST_CHECK(entry.bytes >= bytes);
    entry.bytes -= bytes;
  }

  /// Of everybody who ever had something here, in no order. @param tier  its name, which outlives them
  std::vector<TierHolding> Holdings(std::string_view tier) const {
    std::vector<TierHolding> holdings;
    for (const auto& [owner, entry] : entries_) {
      holdings.push_back({.tier = tier, .owner = owner, .bytes = entry.bytes, .byte_ns = ByteNs(entry)});
    }
    return holdings;
  }
  /// Of all, now.
  uint64_t bytes() const {
    uint64_t bytes = 0;
    for (const auto& [owner, entry] : entries_) bytes += entry.bytes;
    return bytes;
  }

 private:
  struct Entry {
    uint64_t bytes = 0;
    double byte_ns = 0;         ///< Until `since`.
    TimeNs since = kTimeNever;  ///< kTimeNever = no time has begun.
  };

  double ByteNs(const Entry& entry) const {
    if (entry.since == kTimeNever) return entry.byte_ns;
    return entry.byte_ns + static_cast<double>(entry.bytes) * static_cast<double>(now_ - entry.since);
  }
  Entry& EntryOf(TenantId owner) {
    Entry& entry = entries_[owner];
    entry.byte_ns = ByteNs(entry);
    entry.since = now_;
    return entry;
  }

  absl::flat_hash_map<TenantId, Entry> entries_;
  TimeNs now_ = kTimeNever;
};

}  // namespace kvist::kv
