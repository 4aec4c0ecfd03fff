#pragma once

/// @file
/// The merge loop that both algorithms share: while some pair of neighbours may merge, the pair with the lowest
/// priority value merges, the leftmost of equals first (Sennrich et al. 2016, with SentencePiece's tie rule). What
/// merges is the caller's Rules. Short words are scanned; longer ones use a queue that works through memory in order,
/// because in a word of a megabyte the misses of a heap cost more than its comparisons. Threads: one per BpeMerger (it
/// keeps its buffers).

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "base/prng.h"

namespace kvist {

inline constexpr uint32_t kNoMerge = UINT32_MAX;

/// A part of a word: from byte `begin` of the caller's buffer to the begin of the next symbol.
struct BpeSymbol {
  uint32_t begin;
  uint32_t id;  ///< Caller's meaning.
};

/// Merge rules of byte-level BPE: left and right symbol to the place in the merge list. One probe touches one cache
/// line, and most pairs that do not merge are turned away by a small filter before. Built once, then read by any
/// thread.
class BpeMergeTable {
 public:
  /// Room for `count` rules.
  explicit BpeMergeTable(size_t count = 0);

  /// Keeps the first rule of a pair. REQUIRES: at most `count` calls; symbols and rank below UINT32_MAX.
  void Add(uint32_t left, uint32_t right, uint32_t rank);

  /// Rank; kNoMerge when the pair does not merge.
  uint32_t Find(uint32_t left, uint32_t right) const {
    const uint64_t hash = Hash(left, right);
    if ((filter_[hash >> filter_shift_] >> (hash & 63) & 1) == 0) return kNoMerge;
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Rule& rule = rules_[at];
      if (rule.left == left && rule.right == right) return rule.rank;
      if (rule.left == UINT32_MAX) return kNoMerge;
    }
  }

 private:
  struct Rule {
    uint32_t left = UINT32_MAX, right = UINT32_MAX, rank = kNoMerge;  ///< left UINT32_MAX: free.
  };
  static uint64_t Hash(uint32_t left, uint32_t right) { return Mix64(uint64_t{left} << 32 | right); }

  std::vector<Rule> rules_;  ///< A power of two, at most half of it used.
  size_t mask_;
  std::vector<uint64_t> filter_;  ///< Bit set, a power of two of words.
  int filter_shift_;              ///< The word is the hash's top bits.
};

/// Positions waiting to merge, smallest (priority, position) first. A radix queue: entries are appended to one of some
/// hundred bins by priority; a bin is sorted when its turn comes, and what arrives for it later goes to a small heap.
class BpeQueue {
 public:
  /// REQUIRES: empty. Positions will be below `positions_count`.
  void Start(uint32_t positions_count);

  void Add(uint32_t priority, uint32_t position) {
    const uint64_t entry = uint64_t{priority} << 32 | position;
    const uint32_t bin = BinOf(priority);
    if (static_cast<int32_t>(bin) <= bin_) {
      late_.push(entry);
    } else {
      bins_[bin].push_back(entry);
      filled_[bin / 64] |= uint64_t{1} << (bin % 64);
    }
  }

  /// False when empty.
  bool Pop(uint32_t& priority, uint32_t& position) {
    if (at_ == current_.size() && late_.empty() && !NextBin()) return false;
    uint64_t entry;
    if (at_ < current_.size() && (late_.empty() || current_[at_] <= late_.top())) {
      entry = current_[at_++];
    } else {
      entry = late_.top();
      late_.pop();
    }
    priority = static_cast<uint32_t>(entry >> 32);
    position = static_cast<uint32_t>(entry);
    return true;
  }

  /// A position that Pop will give soon, or `none`.
  uint32_t Ahead(uint32_t none) const {
    constexpr size_t kAhead = 8;
    return at_ + kAhead < current_.size() ? static_cast<uint32_t>(current_[at_ + kAhead]) : none;
  }

 private:
  /// Narrow bins for low priorities, which are the frequent ones, wider ones behind: 64 for each power of two.
  static uint32_t BinOf(uint32_t priority) {
    const int shift = std::bit_width(priority | 127) - 7;
    return static_cast<uint32_t>(shift) * 64 + (priority >> shift);
  }
  static constexpr uint32_t kBins = 27 * 64;
  /// Fewer positions fit the nearest caches, where a heap is as good and needs no bins.
  static constexpr uint32_t kHeapPositionsMax = 4096;

  bool NextBin();

  int32_t bin_ = -1;               ///< The one in current_; earlier ones are done.
  std::vector<uint64_t> current_;  ///< Sorted; those before at_ are done.
  size_t at_ = 0;
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> late_;
  std::array<std::vector<uint64_t>, kBins> bins_;  ///< Unsorted.
  std::array<uint64_t, kBins / 64> filled_{};      ///< Bit set of the bins that are not empty.
};

class BpeMerger {
 public:
  /// Merges `symbols` in place; the last one ends at byte `end`. `rules` has
  ///   uint32_t Priority(left_id, right_id, begin, end);                kNoMerge: they stay apart.
  ///   uint32_t Merged(priority, left_id, right_id, begin, end);        Id of what they become.
  /// where [begin, end) is the text of both neighbours.
  template <class Rules>
  void Merge(std::vector<BpeSymbol>& symbols, uint32_t end, const Rules& rules) {
    if (symbols.size() < 2) return;
    if (symbols.size() <= kScanSymbolsMax) {
      Scan(symbols, end, rules);
    } else {
      Queue(symbols, end, rules);
    }
  }

 private:
  /// Up to here, finding the best pair by looking at all costs less than keeping a queue.
  static constexpr size_t kScanSymbolsMax = 64;

  template <class Rules>
  void Scan(std::vector<BpeSymbol>& symbols, uint32_t end, const Rules& rules) {
    const auto pair_end = [&](size_t i) { return i + 2 < symbols.size() ? symbols[i + 2].begin : end; };
    const auto priority_of = [&](size_t i) {
      if (i + 1 >= symbols.size()) return kNoMerge;
      return rules.Priority(symbols[i].id, symbols[i + 1].id, symbols[i].begin, pair_end(i));
    };
    priorities_.clear();
    for (size_t i = 0; i < symbols.size(); ++i) priorities_.push_back(priority_of(i));
    while (true) {
      size_t best = 0;
      for (size_t i = 1; i < priorities_.size(); ++i) {
        if (priorities_[i] < priorities_[best]) best = i;
      }
      if (priorities_[best] == kNoMerge) return;
      symbols[best].id =
          rules.Merged(priorities_[best], symbols[best].id, symbols[best + 1].id, symbols[best].begin, pair_end(best));
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
      priorities_.erase(priorities_.begin() + static_cast<ptrdiff_t>(best) + 1);
      priorities_[best] = priority_of(best);
      if (best > 0) priorities_[best - 1] = priority_of(best - 1);
    }
  }

  template <class Rules>
  void Queue(std::vector<BpeSymbol>& symbols, uint32_t end, const Rules& rules) {
    const auto n = static_cast<uint32_t>(symbols.size());
    symbols.push_back({end, 0});  // So that the pair of the last two has an end.
    nodes_.resize(n + 1);
    if (queue_ == nullptr) queue_ = std::make_unique<BpeQueue>();
    BpeQueue& queue = *queue_;
    queue.Start(n);
    for (uint32_t i = 0; i < n; ++i) nodes_[i] = {symbols[i].id, i + 1, i - 1, kNoMerge};
    nodes_[n] = {0, n, n - 1, kNoMerge};
    const auto update = [&](uint32_t i) {
      Node& node = nodes_[i];
      if (node.next == n) {
        node.priority = kNoMerge;
        return;
      }
      const Node& right = nodes_[node.next];
      node.priority = rules.Priority(node.id, right.id, symbols[i].begin, symbols[right.next].begin);
      if (node.priority != kNoMerge) queue.Add(node.priority, i);
    };
    for (uint32_t i = 0; i < n; ++i) update(i);

    uint32_t priority, i;
    while (queue.Pop(priority, i)) {
      __builtin_prefetch(&nodes_[queue.Ahead(n)]);
      Node& node = nodes_[i];
      // A neighbour merged since: the pair that stood here is gone (a newer one has its own entry).
      if (node.priority != priority) continue;
      Node& gone = nodes_[node.next];
      node.id = rules.Merged(priority, node.id, gone.id, symbols[i].begin, symbols[gone.next].begin);
      node.next = gone.next;
      nodes_[node.next].previous = i;
      gone.priority = kNoMerge;
      update(i);
      if (i != 0) update(node.previous);
    }
    uint32_t kept = 0;
    for (uint32_t at = 0; at != n; at = nodes_[at].next) symbols[kept++] = {symbols[at].begin, nodes_[at].id};
    symbols.resize(kept);
  }

  /// A symbol of a long word. Small, because the places are visited at random.
  struct Node {
    uint32_t id;
    uint32_t next, previous;  ///< Positions; `previous` of the first one means nothing.
    uint32_t priority;        ///< Of this symbol with the next.
  };
  std::vector<Node> nodes_;
  std::vector<uint32_t> priorities_;  ///< The same for Scan.
  std::unique_ptr<BpeQueue> queue_;   ///< Made for the first long word: its bins are not free.
};

}  // namespace kvist
