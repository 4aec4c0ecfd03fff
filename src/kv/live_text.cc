#include "kv/live_text.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "kv/page_layout.h"

namespace kvist::kv {

std::string FindFault(std::span<const CacheOp> ops) {
  uint32_t at = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    const CacheOp& op = ops[i];
    if (op.begin >= op.end) return Cat("operation ", i, " drops no token: [", op.begin, ", ", op.end, ")");
    if (op.end > op.at) {
      return Cat("operation ", i, " drops [", op.begin, ", ", op.end, ") when ", op.at, " tokens are computed");
    }
    if (op.at < at) return Cat("operation ", i, " comes after ", op.at, " tokens, the one before it after ", at);
    at = op.at;
  }
  return "";
}

void LiveText::Advance(uint32_t tokens) {
  if (tokens == 0) return;
  if (!ranges_.empty() && ranges_.back().end == tokens_ && ranges_.back().shift == 0) {
    ranges_.back().end += tokens;
  } else {
    ranges_.push_back({tokens_, tokens_ + tokens, 0});
  }
  tokens_ += tokens;
  live_tokens_ += tokens;
  next_position_ += tokens;
}

void LiveText::Apply(const CacheOp& op) {
  KVIST_CHECK(op.at == tokens_ && op.begin < op.end && op.end <= op.at);
  std::vector<LiveRange> kept;
  kept.reserve(ranges_.size() + 1);
  uint32_t dropped = 0;
  const auto keep = [&](uint32_t begin, uint32_t end, int32_t shift) {
    if (begin >= end) return;
    if (op.reposition) shift -= static_cast<int32_t>(dropped);
    if (!kept.empty() && kept.back().end == begin && kept.back().shift == shift) {
      kept.back().end = end;
    } else {
      kept.push_back({begin, end, shift});
    }
  };
  for (const LiveRange& range : ranges_) {
    keep(range.begin, std::min(range.end, op.begin), range.shift);
    const uint32_t begin = std::max(range.begin, op.begin), end = std::min(range.end, op.end);
    if (begin < end) dropped += end - begin;
    keep(std::max(range.begin, op.end), range.end, range.shift);
  }
  ranges_ = std::move(kept);
  live_tokens_ -= dropped;
  if (op.reposition) next_position_ -= dropped;
}

bool LiveText::AnyLive(uint32_t begin, uint32_t end) const {
  const auto it = std::ranges::partition_point(ranges_, [&](const LiveRange& range) { return range.end <= begin; });
  return it != ranges_.end() && it->begin < end;
}

uint32_t LiveText::LiveBefore(uint32_t token) const {
  if (token >= tokens_) return live_tokens_ + (token - tokens_);
  uint32_t live = 0;
  for (const LiveRange& range : ranges_) live += std::clamp(token, range.begin, range.end) - range.begin;
  return live;
}

LiveText LiveText::After(uint32_t tokens, std::span<const CacheOp> ops) {
  LiveText text;
  for (const CacheOp& op : ops) {
    if (op.at > tokens) break;
    text.Advance(op.at - text.tokens());
    text.Apply(op);
  }
  text.Advance(tokens - text.tokens());
  return text;
}

uint32_t LiveText::LiveBlocks() const {
  uint32_t blocks = 0, counted = 0;  // `counted`: first block not looked at yet.
  for (const LiveRange& range : ranges_) {
    const uint32_t first = std::max(range.begin / kBlockTokens, counted);
    counted = (range.end + kBlockTokens - 1) / kBlockTokens;
    blocks += counted - std::min(first, counted);
  }
  return blocks;
}

LiveText::Need LiveText::Peak(uint32_t tokens, std::span<const CacheOp> ops) {
  LiveText text;
  Need need;
  const auto look = [&] {
    need = {std::max(need.tokens, text.live_tokens()), std::max(need.blocks, text.LiveBlocks())};
  };
  for (const CacheOp& op : ops) {
    if (op.at > tokens) break;
    text.Advance(op.at - text.tokens());
    look();
    text.Apply(op);
  }
  text.Advance(tokens - text.tokens());
  look();
  return need;
}

}  // namespace kvist::kv
