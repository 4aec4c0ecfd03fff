#include "exec/cpu/segments_testutil.h"

#include <algorithm>
#include <cstdio>
#include <thread>

#include "base/check.h"

namespace kvist::exec {
namespace {

constexpr uint32_t kFrames = 4096;

}  // namespace

uint32_t SegmentSequence::tokens() const {
  uint32_t tokens = 0;
  for (const step::Segment& segment : view) tokens += segment.tokens_count;
  return tokens;
}

void SegmentSequence::Drop(uint32_t begin, uint32_t end) {
  std::vector<step::Segment> kept;
  uint32_t start = 0;
  for (const step::Segment& segment : view) {
    const uint32_t stop = start + segment.tokens_count;
    if (start < begin) {
      step::Segment before = segment;
      before.tokens_count = std::min(stop, begin) - start;
      kept.push_back(before);
    }
    if (stop > end) {
      const uint32_t from = std::max(start, end);
      step::Segment after = segment;
      after.token_begin += from - start;
      after.tokens_count = stop - from;
      after.position_shift -= static_cast<int32_t>(end - begin);
      kept.push_back(after);
    }
    start = stop;
  }
  view = kept;
  position -= end - begin;
}

void SegmentSequence::Cut(uint32_t tokens) {
  std::vector<step::Segment> pieces;
  for (const step::Segment& segment : view) {
    for (uint32_t done = 0; done < segment.tokens_count; done += tokens) {
      step::Segment piece = segment;
      piece.token_begin += done;
      piece.tokens_count = std::min(tokens, segment.tokens_count - done);
      pieces.push_back(piece);
    }
  }
  view = pieces;
}

SegmentWorld::SegmentWorld(const std::string& path, const Options& options) : spans_(options.kv_type) {
  auto model = model::LoadModel(path);
  KVIST_CHECK(model.ok());
  model_ = *std::move(model);
  auto executor = CpuExecutor::Create(
      model_,
      {.threads = options.threads,
       .isa = options.isa,
       .context_tokens_max = options.context_tokens != 0 ? options.context_tokens : model_->spec.context_length,
       .frames_count = kFrames,
       .kv_type = options.kv_type,
       .share_segments = options.share_segments},
      spans_, clock_);
  KVIST_CHECK(executor.ok());
  executor_ = *std::move(executor);
}

SpanId SegmentWorld::NewSpan(uint32_t blocks) {
  const SpanId span = spans_.Open();
  for (uint32_t i = 0; i < blocks; ++i) spans_.Append(span, FrameId{next_frame_++});
  KVIST_CHECK(next_frame_ <= kFrames);
  return span;
}

void SegmentWorld::NewTail(SegmentSequence& sequence, uint32_t blocks, uint32_t first) {
  sequence.tail = NewSpan(blocks);
  sequence.tail_tokens = first;
}

std::vector<std::vector<float>> SegmentWorld::Step(const std::vector<Turn>& turns,
                                                   const std::vector<step::BlockCopy>& copies) {
  step::StepPlan plan;
  plan.block_copies = copies;
  for (const Turn& turn : turns) {
    SegmentSequence& sequence = *turn.sequence;
    const auto count = static_cast<uint32_t>(turn.tokens.size());
    step::Segment* last = sequence.view.empty() ? nullptr : &sequence.view.back();
    if (last != nullptr && last->span == sequence.tail && last->position_shift == 0 &&
        last->token_begin + last->tokens_count == sequence.tail_tokens) {
      last->tokens_count += count;
    } else {
      sequence.view.push_back({sequence.tail, sequence.tail_tokens, count});
    }
    plan.slices.push_back({.request = RequestId{plan.slices.size() + 1},
                           .position = sequence.position,
                           .tokens_begin = static_cast<uint32_t>(plan.tokens.size()),
                           .tokens_count = count,
                           .segments_begin = static_cast<uint32_t>(plan.segments.size()),
                           .segments_count = static_cast<uint32_t>(sequence.view.size()),
                           .tail = sequence.tail,
                           .tail_begin = sequence.tail_tokens,
                           .commit_count = count,
                           .logits_rows = count,
                           .mass_begin = static_cast<uint32_t>(plan.mass_ranges.size()),
                           .mass_count = static_cast<uint32_t>(turn.mass_ranges.size())});
    plan.mass_ranges.insert(plan.mass_ranges.end(), turn.mass_ranges.begin(), turn.mass_ranges.end());
    plan.segments.insert(plan.segments.end(), sequence.view.begin(), sequence.view.end());
    for (TokenId token : turn.tokens) plan.tokens.push_back({token});
    sequence.tail_tokens += count;
    sequence.position += count;
  }
  const absl::Status status = executor_->Submit(std::move(plan));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  KVIST_CHECK(status.ok());
  while (true) {
    auto result = executor_->Poll();
    KVIST_CHECK(result.ok());
    if (!*result) {
      std::this_thread::yield();
      continue;
    }
    kv_bytes_read_ = (*result)->kv_bytes_read;
    range_mass_ = (*result)->range_mass;
    std::vector<std::vector<float>> logits;
    auto row = (*result)->logits.begin();
    for (const Turn& turn : turns) {
      const auto end = row + static_cast<std::ptrdiff_t>(turn.tokens.size() * vocab());
      logits.emplace_back(row, end);
      row = end;
    }
    return logits;
  }
}

std::vector<float> SegmentWorld::Append(SegmentSequence& sequence, std::span<const TokenId> tokens, uint32_t chunk) {
  std::vector<float> logits;
  while (!tokens.empty()) {
    const auto part = tokens.first(std::min<size_t>(chunk, tokens.size()));
    const std::vector<float> rows = Step({{&sequence, {part.begin(), part.end()}}})[0];
    logits.insert(logits.end(), rows.begin(), rows.end());
    tokens = tokens.subspan(part.size());
  }
  return logits;
}

}  // namespace kvist::exec
