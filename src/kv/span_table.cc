#include "kv/span_table.h"

#include "base/check.h"

namespace kvist::kv {

SpanId SpanTable::Open(RequestId writer) {
  ++open_count_;
  if (reusable_.empty()) {
    KVIST_CHECK(spans_.size() < (1u << 28));  // A PageId has 28 bits for the span.
    spans_.push_back({.holders = 1, .origin = {.writer = writer}, .frames = {}});
    return SpanId{static_cast<uint32_t>(spans_.size() - 1)};
  }
  uint32_t index = reusable_.back();
  reusable_.pop_back();
  spans_[index].holders = 1;
  spans_[index].origin = {.writer = writer};
  return SpanId{index};
}

void SpanTable::Hold(SpanId span) {
  KVIST_CHECK(spans_[span.value].holders > 0);
  ++spans_[span.value].holders;
}

void SpanTable::Release(SpanId span) {
  Entry& entry = spans_[span.value];
  KVIST_CHECK(entry.holders > 0);
  if (--entry.holders > 0) return;
  entry.frames.clear();
  reusable_.push_back(span.value);
  --open_count_;
}

const SpanTable::Origin& SpanTable::OriginOf(SpanId span) const {
  KVIST_CHECK(span.value < spans_.size() && spans_[span.value].holders > 0);
  return spans_[span.value].origin;
}

void SpanTable::SetWritten(SpanId span, TimeNs at) {
  KVIST_CHECK(spans_[span.value].holders > 0);
  spans_[span.value].origin.written_at = at;
}

void SpanTable::Append(SpanId span, FrameId frame) {
  KVIST_CHECK(spans_[span.value].holders > 0);
  spans_[span.value].frames.push_back(frame);
}

void SpanTable::Replace(SpanId span, uint32_t block, FrameId frame) {
  KVIST_CHECK(spans_[span.value].holders > 0 && block < spans_[span.value].frames.size());
  spans_[span.value].frames[block] = frame;
}

const std::vector<FrameId>& SpanTable::Frames(SpanId span) const {
  KVIST_CHECK(span.value < spans_.size() && spans_[span.value].holders > 0);
  return spans_[span.value].frames;
}

}  // namespace kvist::kv
