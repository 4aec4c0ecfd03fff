#pragma once

/// @file
/// How often and when each cached block was used: what decides which ones are worth a lower tier
/// (kv/tier/admission.h). Blocks that have left memory are remembered for a while, by content, so that one that comes
/// back has its past. Engine thread only. Non-goals: deciding.

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "kv/content_id.h"
#include "kv/page_entry.h"
#include "kv/tier/admission.h"

namespace kvist::kv {

class BlockUses {
 public:
  /// @param remembered  blocks that have left; 0 = nothing is counted at all.
  BlockUses(uint32_t frames, uint32_t remembered) : entries_(remembered > 0 ? frames : 0), remembered_(remembered) {}
  bool enabled() const { return remembered_ > 0; }

  /// The frame holds a block from now on, which is a use.
  void Arrive(FrameId frame, const ContentId& id, TimeNs now) {
    if (!Counts(frame)) return;
    Entry& entry = entries_[frame.value];
    entry = {.id = id, .seen = {.accesses = 0, .first = now, .last = now}, .resident_since = now, .known = true};
    if (const auto past = past_.find(id.low); past != past_.end()) entry.seen = past->second;
    Use(frame, now);
  }
  void Use(FrameId frame, TimeNs now) {
    if (!Counts(frame) || !entries_[frame.value].known) return;
    Entry& entry = entries_[frame.value];
    ++entry.seen.accesses;
    entry.seen.last = now;
    entry.judged = entry.awaited = false;
  }
  /// The frame has lost its block.
  void Leave(FrameId frame) {
    if (!Counts(frame)) return;
    Entry& entry = entries_[frame.value];
    if (entry.known) Remember(entry);
    entry = {};
  }

  DemotionFacts FactsOf(FrameId frame, uint64_t bytes, TimeNs now) const {
    const Entry& entry = entries_[frame.value];
    return {.accesses = entry.seen.accesses,
            .first_access = entry.seen.first,
            .last_access = entry.seen.last,
            .resident_since = entry.resident_since,
            .now = now,
            .bytes = bytes};
  }
  /// What a frame holds, where that is counted.
  std::optional<ContentId> IdOf(FrameId frame) const {
    if (!Counts(frame) || !entries_[frame.value].known) return std::nullopt;
    return entries_[frame.value].id;
  }
  /// Whether it was decided about, until it is used again; also where there is nothing to decide.
  bool IsJudged(FrameId frame) const {
    return !Counts(frame) || !entries_[frame.value].known || entries_[frame.value].judged;
  }
  /// Who had to give the block up will be back for it; until it is used.
  bool IsAwaited(FrameId frame) const { return entries_[frame.value].awaited; }
  void SetAwaited(FrameId frame) { entries_[frame.value].awaited = true; }
  void SetJudged(FrameId frame) { entries_[frame.value].judged = true; }

 private:
  struct Seen {
    uint32_t accesses = 0;
    TimeNs first{0}, last{0};
  };
  struct Entry {
    ContentId id;
    Seen seen;
    TimeNs resident_since{0};
    bool known = false, judged = false, awaited = false;
  };

  bool Counts(FrameId frame) const { return frame.value < entries_.size(); }
  void Remember(const Entry& entry) {
    const auto [it, inserted] = past_.insert_or_assign(entry.id.low, entry.seen);
    if (!inserted) return;
    order_.push_back(entry.id.low);
    if (order_.size() <= remembered_) return;
    past_.erase(order_.front());
    order_.pop_front();
  }

  std::vector<Entry> entries_;                ///< [frames]
  absl::flat_hash_map<uint64_t, Seen> past_;  ///< By the lower half of the content's id, which is a hash.
  std::deque<uint64_t> order_;                ///< First seen first; each key of past_ once.
  const uint32_t remembered_;
};

}  // namespace kvist::kv
