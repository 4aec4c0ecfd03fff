#pragma once

/// @file
/// How the attention of a step is cut into items for the workers: whole runs of query tokens, or single sections of
/// their views. Runs of one token whose views begin with the same sections (same blocks, same turns) read these
/// together: one item for all of them, so that shared pages come from memory once. Source: Zhu et al., "RelayAttention
/// for Efficient Large Language Model Serving with Long System Prompts", ACL 2024; here for any tree of shared
/// beginnings. Which way a run was cut changes no bit of its result. Filled by one thread, then read by the workers;
/// buffers are reused. Non-goals: arithmetic, memory of the sums.

#include <cstdint>
#include <span>
#include <vector>

#include "exec/cpu/step_batch.h"

namespace kvist::exec {

/// One piece of work for each KV head.
struct AttendItem {
  static constexpr uint32_t kWhole = ~0u;
  uint32_t readers_begin = 0, readers_count = 1;  ///< Into readers(): runs.
  uint32_t section = kWhole;                      ///< Of every reader's view; kWhole: the only reader's whole view.
  uint32_t start = 0, tokens = 0;                 ///< View tokens of the section; of a whole run, those up to its last.
  size_t sums = 0;                                ///< Tokens whose sums come before this item's; not for whole runs.
};

/// A run's sums of one section.
struct AttendPart {
  uint32_t item = 0, reader = 0;  ///< Number among the item's readers.
};

/// A run that was cut: its parts in order of the sections.
struct AttendMerge {
  uint32_t run = 0;
  std::span<const AttendPart> parts;
};

class AttendSchedule {
 public:
  struct Options {
    uint32_t kv_heads = 1;
    /// Pieces (item, KV head) that a step should have for its threads; below, the views of single tokens are cut.
    uint32_t pieces_wanted = 0;
    bool share = true;  ///< Let runs read equal sections together.
  };

  /// Most runs that read a section together.
  static constexpr uint32_t kReadersMax = StepBatch::kQueryRunTokens;

  /// Room for steps of `slices` sequences with `tokens` tokens and views of `sections`, so that Build allocates
  /// nothing.
  void Reserve(uint32_t tokens, uint32_t slices, uint32_t sections);

  void Build(const StepBatch& batch, const Options& options);

  std::span<const AttendItem> items() const { return items_; }
  std::span<const AttendMerge> merges() const { return merges_; }
  std::span<const uint32_t> ReadersOf(const AttendItem& item) const {
    return std::span(readers_).subspan(item.readers_begin, item.readers_count);
  }
  /// Tokens of which the items leave sums, of one KV head.
  size_t sums_tokens() const { return sums_tokens_; }

  /// Tokens whose keys and values the items read for one KV head of a layer with this window, each once per item.
  uint64_t TokensRead(const StepBatch& batch, uint32_t window) const;

 private:
  /// What of a run is in items already.
  struct Covered {
    uint32_t parts_begin = 0;  ///< Into parts_, one for every section; of runs of one token.
    uint32_t sections = 0, tokens = 0;
  };
  /// Runs order_[begin, end) have the same view up to section `section`, which starts at view index `start`.
  struct Alike {
    uint32_t begin, end, section, start;
  };

  void Share(const StepBatch& batch);
  /// Moves the runs of `alike` that have the first one's next section behind it. @return  where they end.
  uint32_t GatherAlike(const StepBatch& batch, const Alike& alike);
  void AddSection(std::span<const uint32_t> runs, uint32_t section, uint32_t start, uint32_t tokens);
  void AddRest(const StepBatch& batch, uint32_t run, bool cut);

  std::vector<AttendItem> items_;
  std::vector<AttendMerge> merges_;
  std::vector<AttendPart> parts_;
  std::vector<uint32_t> readers_;
  size_t sums_tokens_ = 0;
  std::vector<Covered> covered_;  ///< [runs]
  std::vector<uint32_t> order_;
  std::vector<Alike> alike_;  ///< To be looked at.
};

}  // namespace kvist::exec
