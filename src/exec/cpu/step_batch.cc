#include "exec/cpu/step_batch.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"

namespace kvist::exec {

void StepBatch::Reserve(const step::ExecutorLimits& limits) {
  const size_t tokens = limits.tokens_per_step_max, slices = limits.slices_per_step_max;
  copies.reserve(slices);
  rows.reserve(tokens);
  shifts.reserve(slices);
  view_blocks.reserve(slices * (limits.context_tokens_max / kv::kBlockTokens + 1));
  runs.reserve(tokens / kQueryRunTokens + slices);
  outputs.reserve(tokens);
}

absl::Status StepBatch::Build(const step::StepPlan& plan, const step::ExecutorLimits& limits,
                              const kv::SpanTable& spans, const kv::FrameArena& arena) {
  KVIST_RETURN_IF_ERROR(CheckLimits(plan, limits));
  frames_count_ = limits.hot_bytes / arena.frame_bytes();
  copies.clear();
  rows.clear();
  view_blocks.clear();
  runs.clear();
  outputs.clear();
  logits_rows = scores_count = sampled_count = logprobs_count = 0;
  for (const step::BlockCopy& copy : plan.block_copies) {
    copies.push_back({.source = FrameOf(spans.Frames(copy.source), copy.source_block, arena),
                      .target = FrameOf(spans.Frames(copy.target), copy.target_block, arena)});
  }
  CollectShifts(plan);
  for (uint32_t i = 0; i < plan.slices.size(); ++i) AddSlice(plan, i, spans, arena);
  KVIST_CHECK(rows.size() == plan.tokens.size());
  return absl::OkStatus();
}

std::byte* StepBatch::FrameOf(const std::vector<FrameId>& frames, uint32_t block, const kv::FrameArena& arena) const {
  KVIST_CHECK(block < frames.size() && frames[block].value < frames_count_);
  return arena.Frame(frames[block]);
}

absl::Status StepBatch::CheckLimits(const step::StepPlan& plan, const step::ExecutorLimits& limits) const {
  if (plan.tokens.size() > limits.tokens_per_step_max || plan.slices.size() > limits.slices_per_step_max) {
    return absl::InvalidArgumentError(Cat("step of ", plan.tokens.size(), " tokens in ", plan.slices.size(),
                                          " slices; at most ", limits.tokens_per_step_max, " and ",
                                          limits.slices_per_step_max));
  }
  if (!plan.copies.empty()) return absl::InvalidArgumentError("page copies: this executor has one tier");
  for (const step::TokenRef& token : plan.tokens) {
    if (token.from_row >= 0)
      return absl::InvalidArgumentError("tokens from steps in flight: this executor runs one step");
    if (token.known.value >= limits.vocab_size) {
      return absl::InvalidArgumentError(Cat("token ", token.known.value, " of a vocabulary of ", limits.vocab_size));
    }
  }
  for (TokenId target : plan.score_targets) {
    if (target.value >= limits.vocab_size) {
      return absl::InvalidArgumentError(Cat("token ", target.value, " of a vocabulary of ", limits.vocab_size));
    }
  }
  for (const step::Slice& slice : plan.slices) {
    if (slice.mask != step::Mask::kCausal) return absl::InvalidArgumentError("only causal masks are supported");
  }
  return absl::OkStatus();
}

void StepBatch::CollectShifts(const step::StepPlan& plan) {
  shifts.assign(1, 0);
  for (const step::Segment& segment : plan.segments) {
    if (segment.position_shift != 0 && segment.position_shift != shifts.back()) {
      shifts.push_back(segment.position_shift);
    }
  }
  std::sort(shifts.begin() + 1, shifts.end());
  shifts.erase(std::unique(shifts.begin() + 1, shifts.end()), shifts.end());
}

uint32_t StepBatch::TurnOf(int32_t shift) const {
  if (shift == 0) return 0;
  return static_cast<uint32_t>(std::lower_bound(shifts.begin() + 1, shifts.end(), shift) - shifts.begin());
}

void StepBatch::AddSlice(const step::StepPlan& plan, uint32_t index, const kv::SpanTable& spans,
                         const kv::FrameArena& arena) {
  const step::Slice& slice = plan.slices[index];
  KVIST_CHECK(slice.tokens_count > 0 && slice.tokens_begin + slice.tokens_count <= plan.tokens.size());
  const uint32_t first_row = static_cast<uint32_t>(rows.size());
  const std::vector<FrameId>& tail = spans.Frames(slice.tail);
  for (uint32_t t = 0; t < slice.tokens_count; ++t) {
    uint32_t in_span = slice.tail_begin + t;
    rows.push_back({.token = plan.tokens[slice.tokens_begin + t].known,
                    .position = slice.position + t,
                    .frame = FrameOf(tail, in_span / kv::kBlockTokens, arena),
                    .slot = in_span % kv::kBlockTokens});
  }
  const uint32_t view_begin = static_cast<uint32_t>(view_blocks.size());
  const uint32_t view_tokens = AddView(plan, slice, spans, arena);
  const uint32_t view_count = static_cast<uint32_t>(view_blocks.size()) - view_begin;
  KVIST_CHECK(view_tokens >= slice.tokens_count);
  for (uint32_t t = 0; t < slice.tokens_count; t += kQueryRunTokens) {
    runs.push_back({.row = first_row + t,
                    .rows = std::min(kQueryRunTokens, slice.tokens_count - t),
                    .view_begin = view_begin,
                    .view_count = view_count,
                    .query_index = view_tokens - slice.tokens_count + t});
  }
  AddOutputs(slice, index, first_row + slice.tokens_count);
}

uint32_t StepBatch::AddView(const step::StepPlan& plan, const step::Slice& slice, const kv::SpanTable& spans,
                            const kv::FrameArena& arena) {
  const auto view_begin = static_cast<uint32_t>(view_blocks.size());
  uint32_t view_tokens = 0;
  KVIST_CHECK(slice.segments_count > 0 && slice.segments_begin + slice.segments_count <= plan.segments.size());
  for (uint32_t s = 0; s < slice.segments_count; ++s) {
    const step::Segment& segment = plan.segments[slice.segments_begin + s];
    const std::vector<FrameId>& frames = spans.Frames(segment.span);
    const uint32_t end = segment.token_begin + segment.tokens_count, turn = TurnOf(segment.position_shift);
    for (uint32_t token = segment.token_begin; token < end;) {
      uint32_t begin = token % kv::kBlockTokens;
      uint32_t count = std::min(kv::kBlockTokens - begin, end - token);
      AddViewBlock(view_begin, {.frame = FrameOf(frames, token / kv::kBlockTokens, arena),
                                .begin = static_cast<uint16_t>(begin),
                                .count = static_cast<uint16_t>(count),
                                .turn = turn});
      token += count;
    }
    view_tokens += segment.tokens_count;
  }
  const step::Segment& last = plan.segments[slice.segments_begin + slice.segments_count - 1];
  KVIST_CHECK(last.span == slice.tail && last.token_begin + last.tokens_count == slice.tail_begin + slice.tokens_count);
  return view_tokens;
}

void StepBatch::AddViewBlock(uint32_t view_begin, const attention::ViewBlock& block) {
  // So the bits do not depend on how a planner cut one stretch of tokens into segments.
  if (view_blocks.size() > view_begin) {
    attention::ViewBlock& last = view_blocks.back();
    if (last.frame == block.frame && last.turn == block.turn && last.begin + last.count == block.begin) {
      last.count = static_cast<uint16_t>(last.count + block.count);
      return;
    }
  }
  view_blocks.push_back(block);
}

void StepBatch::AddOutputs(const step::Slice& slice, uint32_t index, uint32_t row_end) {
  const uint32_t wanted = std::max({slice.logits_rows, slice.scores_count, slice.sampling ? 1u : 0u});
  KVIST_CHECK(wanted <= slice.tokens_count);
  for (uint32_t i = 0; i < wanted; ++i) {
    const uint32_t from_end = wanted - 1 - i;
    OutputRow output{.row = row_end - 1 - from_end, .slice = index};
    if (from_end < slice.logits_rows) output.logits = static_cast<int32_t>(logits_rows++);
    if (from_end < slice.scores_count) {
      output.score = static_cast<int32_t>(slice.scores_begin + slice.scores_count - 1 - from_end);
      ++scores_count;
    }
    if (from_end == 0 && slice.sampling) {
      output.sampled = static_cast<int32_t>(sampled_count++);
      if (slice.sampling->want_logprobs) {
        output.logprobs = static_cast<int32_t>(logprobs_count);
        logprobs_count += 1 + slice.sampling->logprobs_count;
      }
    }
    outputs.push_back(output);
  }
}

}  // namespace kvist::exec
