#include "kv/span_table.h"

#include "base/check.h"

namespace kvist::kv {

SpanId SpanTable::Open() {
  ++open_count_;
  if (reusable_.empty()) {
    KVIST_CHECK(spans_.size() < (1u << 28));  // A PageId has 28 bits for the span.
    spans_.push_back({.open = true, .frames = {}});
    return SpanId{static_cast<uint32_t>(spans_.size() - 1)};
  }
  uint32_t index = reusable_.back();
  reusable_.pop_back();
  spans_[index].open = true;
  return SpanId{index};
}

void SpanTable::Close(SpanId span) {
  Entry& entry = spans_[span.value];
  KVIST_CHECK(entry.open);
  entry.open = false;
  entry.frames.clear();
  reusable_.push_back(span.value);
  --open_count_;
}

void SpanTable::Append(SpanId span, FrameId frame) {
  KVIST_CHECK(spans_[span.value].open);
  spans_[span.value].frames.push_back(frame);
}

void SpanTable::Replace(SpanId span, uint32_t block, FrameId frame) {
  KVIST_CHECK(spans_[span.value].open && block < spans_[span.value].frames.size());
  spans_[span.value].frames[block] = frame;
}

const std::vector<FrameId>& SpanTable::Frames(SpanId span) const {
  KVIST_CHECK(span.value < spans_.size() && spans_[span.value].open);
  return spans_[span.value].frames;
}

}  // namespace kvist::kv
