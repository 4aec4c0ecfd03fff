#pragma once

/// @file
/// A step plan with its addresses translated: per token where its key and value go, per slice the blocks it sees, per
/// wanted row what to do with its logits. Filled on the submitting thread, read by the workers. Buffers are reused.

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "attention/dense.h"
#include "kv/frame_arena.h"
#include "kv/page_layout.h"
#include "kv/span_table.h"
#include "step/executor.h"

namespace kvist::exec {

/// One token of the step.
struct TokenRow {
  TokenId token;
  uint32_t position = 0;  ///< Rotary.
  std::byte* frame = nullptr;
  uint32_t slot = 0;  ///< Token inside the frame's block.
};

/// Consecutive tokens of one slice that are attended to as one task per KV head.
struct QueryRun {
  uint32_t row = 0, rows = 0;               ///< Into rows.
  uint32_t view_begin = 0, view_count = 0;  ///< Into view_blocks.
  uint32_t query_index = 0;                 ///< View index of the first token.
};

/// A frame, or a page of a split block, to be duplicated before the first layer.
struct FrameCopy {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  uint64_t bytes = 0;  ///< Multiple of 64; with pages in the step, all copies are of single pages.
};

/// Where logical addresses lead to.
struct HotMemory {
  const kv::SpanTable& spans;
  const kv::FrameArena& arena;
  const kv::PageLayout& layout;
};

/// A row whose logits are computed.
struct OutputRow {
  uint32_t row = 0;
  int32_t hidden = -1;     ///< Row of StepResult::hidden, or -1.
  int32_t logits = -1;     ///< Row of StepResult::logits, or -1.
  int32_t score = -1;      ///< Index of StepResult::scores and StepPlan::score_targets, or -1.
  int32_t score_top = -1;  ///< First index of StepResult::score_tops, or -1.
  int32_t sampled = -1;    ///< Index of StepResult::sampled, or -1.
  int32_t logprobs = -1;   ///< First index of StepResult::logprobs, or -1.
  uint32_t slice = 0;
};

/// A row whose attention mass is wanted.
struct MassProbe {
  uint32_t row = 0;
  uint32_t query_index = 0;                     ///< Of the row, in its view.
  uint32_t ranges_begin = 0, ranges_count = 0;  ///< Into StepPlan::mass_ranges.
  uint32_t items_begin = 0, items_count = 0;    ///< Into mass_items: all of the view.
};

/// Consecutive tokens of a probe's view in one range, or in none; at most a section of blocks.
struct MassItem {
  static constexpr uint32_t kNoRange = UINT32_MAX;
  uint32_t probe = 0;
  uint32_t range = kNoRange;                    ///< Of the probe's ranges.
  uint32_t start = 0, tokens = 0;               ///< Of the view.
  uint32_t blocks_begin = 0, blocks_count = 0;  ///< Into mass_blocks.
};

class StepBatch {
 public:
  /// Longest run of query tokens in one attention task: enough to share each key read, short enough to balance threads.
  static constexpr uint32_t kQueryRunTokens = 64;

  /// Room for every plan inside `limits`, so that Build allocates nothing. (Views of many short segments may take more
  /// blocks than the context has; they grow the list once.)
  void Reserve(const step::ExecutorLimits& limits);

  /// Checks `plan` against `limits` (InvalidArgument) and translates it. FailedPrecondition names a block or page that
  /// is to be read and is not in hot memory. Aborts on a plan that breaks its own invariants, or writes to a sealed
  /// block.
  absl::Status Build(const step::StepPlan& plan, const step::ExecutorLimits& limits, const HotMemory& memory);

  std::vector<FrameCopy> copies;  ///< In this order: a target may be the source of a later one.
  std::vector<TokenRow> rows;
  std::vector<int32_t> shifts;  ///< Position shifts of the step, by ViewBlock::turn: 0, then the others.
  std::vector<attention::ViewBlock> view_blocks;  ///< Parts of one block that lie side by side are one.
  std::vector<const std::byte*> split_pages;      ///< [split blocks of the step][PageLayout::pages()]
  std::vector<QueryRun> runs;
  std::vector<OutputRow> outputs;
  std::vector<MassProbe> mass_probes;
  std::vector<MassItem> mass_items;
  std::vector<attention::ViewBlock> mass_blocks;  ///< The probes' views, cut where ranges begin and end.
  uint32_t hidden_rows = 0, logits_rows = 0, scores_count = 0, score_tops_count = 0;
  uint32_t sampled_count = 0, logprobs_count = 0;

 private:
  void CollectShifts(const step::StepPlan& plan);
  uint32_t TurnOf(int32_t shift) const;
  absl::Status AddCopies(const step::StepPlan& plan, const HotMemory& memory);
  absl::Status AddPageCopies(const step::BlockCopy& copy, const HotMemory& memory);
  absl::Status AddSlice(const step::StepPlan& plan, uint32_t index, const HotMemory& memory);
  /// @param view_tokens  those of the view are added.
  absl::Status AddView(const step::StepPlan& plan, const step::Slice& slice, const HotMemory& memory,
                       uint32_t& view_tokens);
  absl::StatusOr<uint32_t> SplitRowOf(const step::Segment& segment, uint32_t block, FrameId table,
                                      const HotMemory& memory);
  void AddViewBlock(uint32_t view_begin, const attention::ViewBlock& block);
  void AddOutputs(const step::Slice& slice, uint32_t index, uint32_t row_end);
  void AddMassProbe(const step::StepPlan& plan, const step::Slice& slice, uint32_t view_begin, uint32_t view_tokens);
  void AddMassBlock(uint32_t range, uint32_t start, const attention::ViewBlock& block);

  absl::flat_hash_map<FrameId, uint32_t> split_rows_;  ///< By table of pages.
};

}  // namespace kvist::exec
