#pragma once

/// @file
/// For how long who held how much KV memory. A block that several sequences reference is split evenly between them at
/// every moment, so that what all of them held adds up to what was referenced. Engine thread only. Non-goals: bytes,
/// money, tiers other than the hot one.
///
/// How: each block keeps the integral of 1 / references over time. Who begins to reference it subtracts the integral's
/// value then, who ceases adds the value then: the difference is its part, whatever others did in between. So a
/// reference costs a few operations and a sequence one number.

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "kv/frame_pool.h"

namespace kvist::kv {

/// Block-nanoseconds since the start. REQUIRES for sums: no block was split (those of its frames are nobody's).
struct HeldTotals {
  double referenced = 0;  ///< By sequences: the sum of what each held.
  double cached = 0;      ///< Referenced by nobody, kept for whoever comes.
};

class HoldLedger {
 public:
  explicit HoldLedger(uint32_t frames) : entries_(frames) {}

  /// Time goes on; `counts` is what was from the last call to this one. The first call begins.
  void Advance(TimeNs now, const FrameCounts& counts) {
    if (now_ != kTimeNever) {
      const auto passed = static_cast<double>(now - now_);
      totals_.referenced += passed * (counts.referenced + counts.loading_held);
      totals_.cached += passed * (counts.cached + counts.storing);
    }
    now_ = now;
  }

  /// The integral of a block now; to be called before its references change. @param references  before
  double Fold(FrameId frame, uint32_t references) {
    Entry& entry = EntryOf(frame);
    entry.integral = ValueOf(entry, references);
    entry.since = now_;
    return entry.integral;
  }
  double Value(FrameId frame, uint32_t references) const {
    if (frame.value < entries_.size()) return ValueOf(entries_[frame.value], references);
    const auto it = tables_.find(frame);
    return it == tables_.end() ? 0 : ValueOf(it->second, references);
  }
  /// A frame has a new meaning.
  void Reset(FrameId frame) { EntryOf(frame) = {0, now_}; }
  /// A block is known by another number from now on. @param references  of it
  void Rename(FrameId from, FrameId to, uint32_t references) {
    EntryOf(to) = {Fold(from, references), now_};
    tables_.erase(from);
  }

  /// Of the last Advance; kTimeNever before the first.
  TimeNs now() const { return now_; }
  const HeldTotals& totals() const { return totals_; }

 private:
  struct Entry {
    double integral = 0;
    TimeNs since = kTimeNever;
  };

  Entry& EntryOf(FrameId frame) { return frame.value < entries_.size() ? entries_[frame.value] : tables_[frame]; }
  double ValueOf(const Entry& entry, uint32_t references) const {
    if (references == 0) return 0;
    if (entry.since == kTimeNever) return entry.integral;
    return entry.integral + static_cast<double>(now_ - entry.since) / references;
  }

  std::vector<Entry> entries_;
  absl::flat_hash_map<FrameId, Entry> tables_;  ///< Of blocks that were split.
  TimeNs now_ = kTimeNever;
  HeldTotals totals_;
};

}  // namespace kvist::kv
