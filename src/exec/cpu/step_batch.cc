#include "exec/cpu/step_batch.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "step/check_limits.h"

namespace kvist::exec {
namespace {

bool IsHere(const kv::PageEntry& entry, const HotMemory& memory) {
  return kv::IsReadable(entry.state) && entry.codec == memory.layout.type();
}

/// The frame of an unsplit block that IsHere.
std::byte* FrameOf(const kv::PageEntry& entry, const HotMemory& memory) {
  KVIST_CHECK(entry.frame.value < memory.arena.frames_count());
  return memory.arena.Frame(entry.frame);
}

std::byte* PageOf(const kv::PageEntry& page, const HotMemory& memory) {
  return FrameOf(page, memory) + memory.layout.PageOffset(page.slot);
}

absl::Status NotHere(SpanId span, uint32_t block) {
  return absl::FailedPreconditionError(Cat("block ", block, " of span ", span.value, " is not in hot memory"));
}

absl::Status NotHere(SpanId span, uint32_t block, uint32_t page, const kv::PageLayout& layout) {
  const kv::Lane& lane = layout.LaneOf(page);
  return absl::FailedPreconditionError(Cat("block ", block, " of span ", span.value, ": the ",
                                           lane.kind == kv::LaneKind::kKey ? "keys" : "values", " of head ", lane.head,
                                           " in layer ", page / layout.lanes().size(), " are not in hot memory"));
}

}  // namespace

void StepBatch::Reserve(const step::ExecutorLimits& limits) {
  const size_t tokens = limits.tokens_per_step_max, slices = limits.slices_per_step_max;
  copies.reserve(slices);
  rows.reserve(tokens);
  shifts.reserve(slices);
  view_blocks.reserve(slices * (limits.context_tokens_max / kv::kBlockTokens + 1));
  runs.reserve(tokens / kQueryRunTokens + slices);
  outputs.reserve(tokens);
  mass_probes.reserve(slices);
  mass_items.reserve(slices * attention::SectionsOf(limits.context_tokens_max / kv::kBlockTokens + 1));
  mass_blocks.reserve(view_blocks.capacity());
}

absl::Status StepBatch::Build(const step::StepPlan& plan, const step::ExecutorLimits& limits, const HotMemory& memory) {
  KVIST_RETURN_IF_ERROR(step::CheckLimits(plan, limits));
  copies.clear();
  rows.clear();
  view_blocks.clear();
  split_pages.clear();
  split_rows_.clear();
  runs.clear();
  outputs.clear();
  mass_probes.clear();
  mass_items.clear();
  mass_blocks.clear();
  hidden_rows = logits_rows = scores_count = score_tops_count = sampled_count = logprobs_count = 0;
  KVIST_RETURN_IF_ERROR(AddCopies(plan, memory));
  CollectShifts(plan);
  for (uint32_t i = 0; i < plan.slices.size(); ++i) KVIST_RETURN_IF_ERROR(AddSlice(plan, i, memory));
  KVIST_CHECK(rows.size() == plan.tokens.size());
  return absl::OkStatus();
}

absl::Status StepBatch::AddCopies(const step::StepPlan& plan, const HotMemory& memory) {
  const auto is_split = [&](SpanId span, uint32_t block) {
    return memory.spans.At(span, block).state == kv::PageState::kSplit;
  };
  // Workers take their shares of equal pieces, so that copies of copies are right: frames or pages, not both.
  const bool by_page = std::ranges::any_of(plan.block_copies, [&](const step::BlockCopy& copy) {
    return is_split(copy.source, copy.source_block) || is_split(copy.target, copy.target_block);
  });
  for (const step::BlockCopy& copy : plan.block_copies) {
    if (by_page) {
      KVIST_RETURN_IF_ERROR(AddPageCopies(copy, memory));
      continue;
    }
    const kv::PageEntry& source = memory.spans.At(copy.source, copy.source_block);
    const kv::PageEntry& target = memory.spans.At(copy.target, copy.target_block);
    KVIST_CHECK(target.state == kv::PageState::kOpen);
    if (!IsHere(source, memory)) return NotHere(copy.source, copy.source_block);
    copies.push_back(
        {.source = FrameOf(source, memory), .target = FrameOf(target, memory), .bytes = memory.layout.frame_bytes()});
  }
  return absl::OkStatus();
}

absl::Status StepBatch::AddPageCopies(const step::BlockCopy& copy, const HotMemory& memory) {
  // A block that is not split has page p in slot p.
  const auto page_of = [&](SpanId span, uint32_t block, uint32_t page) {
    kv::PageEntry entry = memory.spans.At(span, block);
    if (entry.state == kv::PageState::kSplit) return memory.spans.PagesOf(entry.frame)[page];
    entry.slot = static_cast<uint16_t>(page);
    return entry;
  };
  for (uint32_t page = 0; page < memory.layout.pages(); ++page) {
    const kv::PageEntry target = page_of(copy.target, copy.target_block, page);
    if (target.state == kv::PageState::kNone) continue;
    KVIST_CHECK(target.state == kv::PageState::kOpen);
    const kv::PageEntry source = page_of(copy.source, copy.source_block, page);
    if (!IsHere(source, memory)) return NotHere(copy.source, copy.source_block, page, memory.layout);
    copies.push_back({.source = PageOf(source, memory),
                      .target = PageOf(target, memory),
                      .bytes = memory.layout.LaneOf(page).page_bytes});
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

absl::Status StepBatch::AddSlice(const step::StepPlan& plan, uint32_t index, const HotMemory& memory) {
  const step::Slice& slice = plan.slices[index];
  KVIST_CHECK(slice.tokens_count > 0 && slice.tokens_begin + slice.tokens_count <= plan.tokens.size());
  const uint32_t first_row = static_cast<uint32_t>(rows.size());
  std::byte* frame = nullptr;
  for (uint32_t t = 0; t < slice.tokens_count; ++t) {
    const uint32_t in_span = slice.tail_begin + t;
    if (t == 0 || in_span % kv::kBlockTokens == 0) {
      const kv::PageEntry& entry = memory.spans.At(slice.tail, in_span / kv::kBlockTokens);
      KVIST_CHECK(entry.state == kv::PageState::kOpen && entry.codec == memory.layout.type());
      frame = FrameOf(entry, memory);
    }
    rows.push_back({.token = plan.tokens[slice.tokens_begin + t].known,
                    .position = slice.position + t,
                    .frame = frame,
                    .slot = in_span % kv::kBlockTokens});
  }
  const uint32_t view_begin = static_cast<uint32_t>(view_blocks.size());
  uint32_t view_tokens = 0;
  KVIST_RETURN_IF_ERROR(AddView(plan, slice, memory, view_tokens));
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
  if (slice.mass_count > 0) AddMassProbe(plan, slice, view_begin, view_tokens);
  return absl::OkStatus();
}

absl::Status StepBatch::AddView(const step::StepPlan& plan, const step::Slice& slice, const HotMemory& memory,
                                uint32_t& view_tokens) {
  const auto view_begin = static_cast<uint32_t>(view_blocks.size());
  KVIST_CHECK(slice.segments_count > 0 && slice.segments_begin + slice.segments_count <= plan.segments.size());
  for (uint32_t s = 0; s < slice.segments_count; ++s) {
    const step::Segment& segment = plan.segments[slice.segments_begin + s];
    const std::span<const kv::PageEntry> blocks = memory.spans.Blocks(segment.span);
    const uint32_t end = segment.token_begin + segment.tokens_count, turn = TurnOf(segment.position_shift);
    KVIST_CHECK((end + kv::kBlockTokens - 1) / kv::kBlockTokens <= blocks.size());
    for (uint32_t token = segment.token_begin; token < end;) {
      const uint32_t begin = token % kv::kBlockTokens, index = token / kv::kBlockTokens;
      const uint32_t count = std::min(kv::kBlockTokens - begin, end - token);
      const kv::PageEntry& entry = memory.spans.Resolve(blocks[index]);
      const std::byte* frame = nullptr;
      uint32_t pages = 0;
      if (IsHere(entry, memory)) [[likely]] {
        frame = FrameOf(entry, memory);
      } else if (entry.state == kv::PageState::kSplit) {
        KVIST_ASSIGN_OR_RETURN(pages, SplitRowOf(segment, index, entry.frame, memory));
      } else {
        return NotHere(segment.span, index);
      }
      AddViewBlock(view_begin, {.frame = frame,
                                .begin = static_cast<uint8_t>(begin),
                                .count = static_cast<uint8_t>(count),
                                .pages = static_cast<uint16_t>(pages),
                                .turn = turn});
      token += count;
    }
    view_tokens += segment.tokens_count;
  }
  const step::Segment& last = plan.segments[slice.segments_begin + slice.segments_count - 1];
  KVIST_CHECK(last.span == slice.tail && last.token_begin + last.tokens_count == slice.tail_begin + slice.tokens_count);
  return absl::OkStatus();
}

/// Number of the split block among those of the step, from 1 on: the same for everybody who sees it.
absl::StatusOr<uint32_t> StepBatch::SplitRowOf(const step::Segment& segment, uint32_t block, FrameId table,
                                               const HotMemory& memory) {
  const auto [it, inserted] = split_rows_.try_emplace(table, static_cast<uint32_t>(split_rows_.size()) + 1);
  if (!inserted) return it->second;
  if (it->second > attention::kSplitBlocksMax) {
    return absl::InvalidArgumentError(Cat("a step over more than ", attention::kSplitBlocksMax, " split blocks"));
  }
  const std::span<const kv::PageEntry> pages = memory.spans.PagesOf(table);
  KVIST_CHECK(pages.size() == memory.layout.pages());
  for (uint32_t page = 0; page < pages.size(); ++page) {
    if (!IsHere(pages[page], memory)) return NotHere(segment.span, block, page, memory.layout);
    split_pages.push_back(PageOf(pages[page], memory));
  }
  return it->second;
}

void StepBatch::AddViewBlock(uint32_t view_begin, const attention::ViewBlock& block) {
  // So the bits do not depend on how a planner cut one stretch of tokens into segments.
  if (block.begin > 0 && view_blocks.size() > view_begin) {
    attention::ViewBlock& last = view_blocks.back();
    if (last.frame == block.frame && last.pages == block.pages && last.turn == block.turn &&
        last.begin + last.count == block.begin) {
      last.count = static_cast<uint8_t>(last.count + block.count);
      return;
    }
  }
  view_blocks.push_back(block);
}

void StepBatch::AddOutputs(const step::Slice& slice, uint32_t index, uint32_t row_end) {
  const uint32_t last_rows = std::max(slice.logits_rows, slice.sampling || slice.want_hidden ? 1u : 0u);
  KVIST_CHECK(last_rows <= slice.tokens_count && slice.scores_row + slice.scores_count <= slice.tokens_count);
  const uint32_t last_begin = slice.tokens_count - last_rows;
  for (uint32_t i = std::min(last_begin, slice.scores_row); i < slice.tokens_count; ++i) {
    const uint32_t from_end = slice.tokens_count - 1 - i;
    const bool scored = i >= slice.scores_row && i - slice.scores_row < slice.scores_count;
    if (i < last_begin && !scored) continue;
    OutputRow output{.row = row_end - 1 - from_end, .slice = index};
    if (from_end == 0 && slice.want_hidden) output.hidden = static_cast<int32_t>(hidden_rows++);
    if (from_end < slice.logits_rows) output.logits = static_cast<int32_t>(logits_rows++);
    if (scored) {
      output.score = static_cast<int32_t>(slice.scores_begin + i - slice.scores_row);
      ++scores_count;
      if (slice.scores_top > 0) output.score_top = static_cast<int32_t>(score_tops_count);
      score_tops_count += slice.scores_top;
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

void StepBatch::AddMassProbe(const step::StepPlan& plan, const step::Slice& slice, uint32_t view_begin,
                             uint32_t view_tokens) {
  KVIST_CHECK(slice.mass_begin + slice.mass_count <= plan.mass_ranges.size());
  const auto ranges = std::span(plan.mass_ranges).subspan(slice.mass_begin, slice.mass_count);
  for (size_t i = 0; i < ranges.size(); ++i) {
    KVIST_CHECK(ranges[i].begin <= ranges[i].end && (i == 0 || ranges[i].begin >= ranges[i - 1].end));
  }
  KVIST_CHECK(ranges.back().end <= view_tokens);
  mass_probes.push_back({.row = static_cast<uint32_t>(rows.size()) - 1,
                         .query_index = view_tokens - 1,
                         .ranges_begin = slice.mass_begin,
                         .ranges_count = slice.mass_count,
                         .items_begin = static_cast<uint32_t>(mass_items.size())});
  uint32_t range = 0, at = 0;  // `at` in the view.
  for (size_t b = view_begin; b < view_blocks.size(); ++b) {
    attention::ViewBlock rest = view_blocks[b];
    while (rest.count > 0) {
      while (range < ranges.size() && ranges[range].end <= at) ++range;
      const bool inside = range < ranges.size() && ranges[range].begin <= at;
      const uint32_t bound = range == ranges.size() ? UINT32_MAX : inside ? ranges[range].end : ranges[range].begin;
      attention::ViewBlock part = rest;
      part.count = static_cast<uint8_t>(std::min<uint32_t>(rest.count, bound - at));
      AddMassBlock(inside ? range : MassItem::kNoRange, at, part);
      rest.begin = static_cast<uint8_t>(rest.begin + part.count);
      rest.count = static_cast<uint8_t>(rest.count - part.count);
      at += part.count;
    }
  }
}

void StepBatch::AddMassBlock(uint32_t range, uint32_t start, const attention::ViewBlock& block) {
  MassProbe& probe = mass_probes.back();
  MassItem* item = probe.items_count == 0 ? nullptr : &mass_items.back();
  if (item == nullptr || item->range != range || item->blocks_count == attention::kSectionBlocks) {
    mass_items.push_back({.probe = static_cast<uint32_t>(mass_probes.size()) - 1,
                          .range = range,
                          .start = start,
                          .blocks_begin = static_cast<uint32_t>(mass_blocks.size())});
    item = &mass_items.back();
    ++probe.items_count;
  }
  mass_blocks.push_back(block);
  ++item->blocks_count;
  item->tokens += block.count;
}

}  // namespace kvist::exec
