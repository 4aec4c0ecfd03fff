#include "kv/span_table.h"

namespace kvist::kv {

SpanId SpanTable::Open(RequestId writer, BlockSource source) {
  ++open_count_;
  if (reusable_.empty()) {
    KVIST_CHECK(spans_.size() < (1u << 28));  // A PageId has 28 bits for the span.
    spans_.push_back({.holders = 1, .origin = {.writer = writer, .source = source}, .blocks = {}});
    return SpanId{static_cast<uint32_t>(spans_.size() - 1)};
  }
  uint32_t index = reusable_.back();
  reusable_.pop_back();
  spans_[index].holders = 1;
  spans_[index].origin = {.writer = writer, .source = source};
  return SpanId{index};
}

void SpanTable::Hold(SpanId span) {
  KVIST_CHECK(spans_[span.value].holders > 0);
  ++spans_[span.value].holders;
}

void SpanTable::Release(SpanId span) {
  Span& entry = spans_[span.value];
  KVIST_CHECK(entry.holders > 0);
  if (--entry.holders > 0) return;
  entry.blocks.clear();
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
  Append(span, {.frame = frame, .state = PageState::kOpen, .codec = codec_});
}

void SpanTable::Append(SpanId span, const PageEntry& entry) {
  KVIST_CHECK(spans_[span.value].holders > 0 && FindFault(entry).empty());
  spans_[span.value].blocks.push_back(entry);
}

BlockPlace SpanTable::Locate(SpanId span, uint32_t block) const {
  const PageEntry& entry = Own(span, block);
  if (entry.state != PageState::kElsewhere) return {span, block};
  return {entry.elsewhere_span(), entry.elsewhere_block()};
}

void SpanTable::Put(SpanId span, uint32_t block, const PageEntry& entry) {
  KVIST_CHECK(FindFault(entry).empty() && entry.state != PageState::kElsewhere);
  Target(span, block) = entry;
}

void SpanTable::Seal(SpanId span, uint32_t block) {
  PageEntry& entry = Target(span, block);
  KVIST_CHECK(entry.state == PageState::kOpen);
  entry.state = PageState::kSealed;
}

void SpanTable::Replace(SpanId span, uint32_t block, FrameId frame) {
  PageEntry& entry = Target(span, block);
  if (frame == kNoFrame) {
    entry.state = PageState::kNone;
  } else if (entry.state == PageState::kNone) {
    entry.state = PageState::kSealed;
  }
  entry.frame = frame;
  KVIST_CHECK(FindFault(entry).empty());
}

void SpanTable::Redirect(SpanId span, uint32_t block, SpanId to, uint32_t to_block) {
  KVIST_CHECK(Own(to, to_block).state != PageState::kElsewhere);
  PageEntry& entry = const_cast<PageEntry&>(Own(span, block));
  KVIST_CHECK(&entry != &Own(to, to_block));
  entry = PageEntry::Elsewhere(to, to_block);
}

FrameId SpanTable::AddPages(std::vector<PageEntry> pages) {
  KVIST_CHECK(!pages.empty());
  uint32_t index = static_cast<uint32_t>(tables_.size());
  if (reusable_tables_.empty()) {
    tables_.push_back(std::move(pages));
  } else {
    index = reusable_tables_.back();
    reusable_tables_.pop_back();
    tables_[index] = std::move(pages);
  }
  return FrameId{kPageTableBit | index};
}

void SpanTable::RemovePages(FrameId table) {
  KVIST_CHECK(!PagesOf(table).empty());
  tables_[table.value & ~kPageTableBit].clear();
  reusable_tables_.push_back(table.value & ~kPageTableBit);
}

void SpanTable::PutPage(FrameId table, uint32_t page, const PageEntry& entry) {
  KVIST_CHECK(page < PagesOf(table).size() && FindFault(entry).empty());
  tables_[table.value & ~kPageTableBit][page] = entry;
}

}  // namespace kvist::kv
