#pragma once

/// @file
/// A step plan with its addresses translated: per token where its key and value go, per slice the blocks it sees, per
/// wanted row what to do with its logits. Filled on the submitting thread, read by the workers. Buffers are reused.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "attention/dense.h"
#include "kv/frame_arena.h"
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

/// A frame to be duplicated before the first layer.
struct FrameCopy {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
};

/// A row whose logits are computed.
struct OutputRow {
  uint32_t row = 0;
  int32_t logits = -1;    ///< Row of StepResult::logits, or -1.
  int32_t score = -1;     ///< Index of StepResult::scores and StepPlan::score_targets, or -1.
  int32_t sampled = -1;   ///< Index of StepResult::sampled, or -1.
  int32_t logprobs = -1;  ///< First index of StepResult::logprobs, or -1.
  uint32_t slice = 0;
};

class StepBatch {
 public:
  /// Longest run of query tokens in one attention task: enough to share each key read, short enough to balance threads.
  static constexpr uint32_t kQueryRunTokens = 64;

  /// Room for every plan inside `limits`, so that Build allocates nothing. (Views of many short segments may take more
  /// blocks than the context has; they grow the list once.)
  void Reserve(const step::ExecutorLimits& limits);

  /// Checks `plan` against `limits` (InvalidArgument) and translates it. Aborts on a plan that breaks its own
  /// invariants.
  absl::Status Build(const step::StepPlan& plan, const step::ExecutorLimits& limits, const kv::SpanTable& spans,
                     const kv::FrameArena& arena);

  std::vector<FrameCopy> copies;  ///< In this order: a target may be the source of a later one.
  std::vector<TokenRow> rows;
  std::vector<int32_t> shifts;  ///< Position shifts of the step, by ViewBlock::turn: 0, then the others.
  std::vector<attention::ViewBlock> view_blocks;  ///< Parts of one block that lie side by side are one.
  std::vector<QueryRun> runs;
  std::vector<OutputRow> outputs;
  uint32_t logits_rows = 0, scores_count = 0, sampled_count = 0, logprobs_count = 0;

 private:
  std::byte* FrameOf(const std::vector<FrameId>& frames, uint32_t block, const kv::FrameArena& arena) const;
  absl::Status CheckLimits(const step::StepPlan& plan, const step::ExecutorLimits& limits) const;
  void CollectShifts(const step::StepPlan& plan);
  uint32_t TurnOf(int32_t shift) const;
  void AddSlice(const step::StepPlan& plan, uint32_t index, const kv::SpanTable& spans, const kv::FrameArena& arena);
  uint32_t AddView(const step::StepPlan& plan, const step::Slice& slice, const kv::SpanTable& spans,
                   const kv::FrameArena& arena);
  void AddViewBlock(uint32_t view_begin, const attention::ViewBlock& block);
  void AddOutputs(const step::Slice& slice, uint32_t index, uint32_t row_end);

  uint64_t frames_count_ = 0;
};

}  // namespace kvist::exec
