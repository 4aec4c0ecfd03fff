#pragma once

/// @file
/// The merge loop that both algorithms share: while some pair of neighbours may merge, the pair with the lowest
/// priority value merges, the leftmost of equals first (Sennrich et al. 2016, with SentencePiece's tie rule). What
/// merges is the caller's Lookup. Short words are scanned; long ones use a queue of buckets, one a priority value,
/// whose positions mostly arrive in order, so that a word of n symbols costs little more than n. Threads: one per
/// BpeMerger (it keeps its buffers).

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace kvist {

inline constexpr uint32_t kNoMerge = UINT32_MAX;

/// A part of a word: from byte `begin` of the caller's buffer to the begin of the next symbol.
struct BpeSymbol {
  uint32_t begin;
  uint32_t id;  ///< Caller's meaning.
};

/// What two neighbours become.
struct BpePair {
  uint32_t priority = kNoMerge;  ///< Lower first; kNoMerge = they stay apart.
  uint32_t id = 0;               ///< Of the merged symbol.
};

/// Positions waiting to merge, smallest (priority, position) first. Duplicates are allowed.
class BpeQueue {
 public:
  void Clear();
  void Add(uint32_t priority, uint32_t position);
  /// False when empty.
  bool Pop(uint32_t& priority, uint32_t& position);

 private:
  using MinHeap = std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>>;
  struct Bucket {
    std::vector<uint32_t> ordered;  ///< Ascending; those before `taken` are done.
    size_t taken = 0;
    MinHeap late;  ///< Arrived out of order.
    bool Empty() const { return taken == ordered.size() && late.empty(); }
  };

  absl::flat_hash_map<uint32_t, uint32_t> bucket_of_;  ///< Priority to index.
  std::vector<Bucket> buckets_;
  MinHeap priorities_;  ///< Of the buckets that are not empty.
  uint32_t last_priority_ = kNoMerge, last_bucket_ = 0;
};

class BpeMerger {
 public:
  /// Merges `symbols` in place; the last one ends at byte `end`. `lookup(left, right, right_end)` gives the BpePair of
  /// two neighbours, [left.begin, right_end) being their text.
  template <class Lookup>
  void Merge(std::vector<BpeSymbol>& symbols, uint32_t end, const Lookup& lookup) {
    if (symbols.size() < 2) return;
    if (symbols.size() <= kScanSymbolsMax) {
      Scan(symbols, end, lookup);
    } else {
      Queue(symbols, end, lookup);
    }
  }

 private:
  /// Up to here, finding the best pair by looking at all costs less than keeping a queue.
  static constexpr size_t kScanSymbolsMax = 64;

  template <class Lookup>
  void Scan(std::vector<BpeSymbol>& symbols, uint32_t end, const Lookup& lookup) {
    const auto pair_at = [&](size_t i) {
      if (i + 1 >= symbols.size()) return BpePair{};
      return lookup(symbols[i], symbols[i + 1], i + 2 < symbols.size() ? symbols[i + 2].begin : end);
    };
    pairs_.clear();
    for (size_t i = 0; i < symbols.size(); ++i) pairs_.push_back(pair_at(i));
    while (true) {
      size_t best = 0;
      for (size_t i = 1; i < pairs_.size(); ++i) {
        if (pairs_[i].priority < pairs_[best].priority) best = i;
      }
      if (pairs_[best].priority == kNoMerge) return;
      symbols[best].id = pairs_[best].id;
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
      pairs_.erase(pairs_.begin() + static_cast<ptrdiff_t>(best) + 1);
      pairs_[best] = pair_at(best);
      if (best > 0) pairs_[best - 1] = pair_at(best - 1);
    }
  }

  template <class Lookup>
  void Queue(std::vector<BpeSymbol>& symbols, uint32_t end, const Lookup& lookup) {
    const auto n = static_cast<uint32_t>(symbols.size());
    next_.resize(n);
    previous_.resize(n);
    pairs_.assign(n, BpePair{});
    queue_.Clear();
    const auto update = [&](uint32_t i) {
      const uint32_t j = next_[i];
      if (j == n) {
        pairs_[i] = BpePair{};
        return;
      }
      pairs_[i] = lookup(symbols[i], symbols[j], next_[j] == n ? end : symbols[next_[j]].begin);
      if (pairs_[i].priority != kNoMerge) queue_.Add(pairs_[i].priority, i);
    };
    for (uint32_t i = 0; i < n; ++i) {
      next_[i] = i + 1;
      previous_[i] = i - 1;  // Of symbol 0 never used.
    }
    for (uint32_t i = 0; i < n; ++i) update(i);

    uint32_t priority, i;
    while (queue_.Pop(priority, i)) {
      // A neighbour merged since: the pair that stood here is gone (a newer one has its own entry).
      if (pairs_[i].priority != priority) continue;
      const uint32_t gone = next_[i];
      symbols[i].id = pairs_[i].id;
      next_[i] = next_[gone];
      if (next_[i] != n) previous_[next_[i]] = i;
      pairs_[gone] = BpePair{};
      update(i);
      if (i != 0) update(previous_[i]);
    }
    uint32_t kept = 0;
    for (uint32_t at = 0; at != n; at = next_[at]) symbols[kept++] = symbols[at];
    symbols.resize(kept);
  }

  std::vector<BpePair> pairs_;  ///< pairs_[i] = symbol i with its right neighbour.
  std::vector<uint32_t> next_, previous_;
  BpeQueue queue_;
};

}  // namespace kvist
