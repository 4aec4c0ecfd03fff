#include "exec/cpu/step_batch.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"

namespace kvist::exec {

absl::Status StepBatch::Build(const step::StepPlan& plan, const step::ExecutorLimits& limits,
                              const kv::SpanTable& spans, const kv::FrameArena& arena) {
  KVIST_RETURN_IF_ERROR(CheckLimits(plan, limits));
  rows.clear();
  view_blocks.clear();
  runs.clear();
  outputs.clear();
  logits_rows = scores_count = sampled_count = logprobs_count = 0;
  for (uint32_t i = 0; i < plan.slices.size(); ++i) AddSlice(plan, i, spans, arena);
  KVIST_CHECK(rows.size() == plan.tokens.size());
  return absl::OkStatus();
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
  for (const step::Segment& segment : plan.segments) {
    if (segment.position_shift != 0) return absl::InvalidArgumentError("position shifts are not supported");
  }
  return absl::OkStatus();
}

void StepBatch::AddSlice(const step::StepPlan& plan, uint32_t index, const kv::SpanTable& spans,
                         const kv::FrameArena& arena) {
  const step::Slice& slice = plan.slices[index];
  KVIST_CHECK(slice.tokens_count > 0 && slice.tokens_begin + slice.tokens_count <= plan.tokens.size());
  const uint32_t first_row = static_cast<uint32_t>(rows.size());
  const std::vector<FrameId>& tail = spans.Frames(slice.tail);
  for (uint32_t t = 0; t < slice.tokens_count; ++t) {
    uint32_t in_span = slice.tail_begin + t;
    KVIST_CHECK(in_span / kv::kBlockTokens < tail.size());
    rows.push_back({.token = plan.tokens[slice.tokens_begin + t].known,
                    .position = slice.position + t,
                    .frame = arena.Frame(tail[in_span / kv::kBlockTokens]),
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
  uint32_t view_tokens = 0;
  KVIST_CHECK(slice.segments_begin + slice.segments_count <= plan.segments.size());
  for (uint32_t s = 0; s < slice.segments_count; ++s) {
    const step::Segment& segment = plan.segments[slice.segments_begin + s];
    const std::vector<FrameId>& frames = spans.Frames(segment.span);
    const uint32_t end = segment.token_begin + segment.tokens_count;
    KVIST_CHECK(kv::kBlockTokens * frames.size() >= end);
    for (uint32_t token = segment.token_begin; token < end;) {
      uint32_t begin = token % kv::kBlockTokens;
      uint32_t count = std::min(kv::kBlockTokens - begin, end - token);
      view_blocks.push_back(
          {arena.Frame(frames[token / kv::kBlockTokens]), static_cast<uint16_t>(begin), static_cast<uint16_t>(count)});
      token += count;
    }
    view_tokens += segment.tokens_count;
  }
  return view_tokens;
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
