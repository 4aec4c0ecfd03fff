#include "lab/world_content.h"

#include <algorithm>
#include <cstring>

namespace kvist::lab {
namespace {

constexpr std::string_view kLetters = ".abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ01234567";
static_assert(kLetters.size() == kContentVocab);

/// A text whose tokens are computed one by one.
class PlainText {
 public:
  explicit PlainText(uint64_t cache_namespace) : cache_namespace_(cache_namespace) {}

  void Add(TokenId token) {
    const ContentSlot slot = fold_.Compute(cache_namespace_, token, next_position_);
    view_.push_back({.index = tokens_++, .history = slot.history, .position = next_position_++});
    fold_.Read(view_.back().history, view_.back().position);
  }
  void Drop(const kv::CacheOp& op) {
    uint32_t dropped = 0;
    std::vector<Slot> kept;
    for (Slot slot : view_) {
      if (slot.index >= op.begin && slot.index < op.end) {
        ++dropped;
        continue;
      }
      if (op.reposition && slot.index >= op.end) slot.position -= dropped;
      kept.push_back(slot);
    }
    view_ = std::move(kept);
    if (op.reposition) next_position_ -= dropped;
    fold_ = {};
    for (const Slot& slot : view_) fold_.Read(slot.history, slot.position);
  }
  uint32_t tokens() const { return tokens_; }
  uint32_t live_tokens() const { return static_cast<uint32_t>(view_.size()); }
  uint32_t live_blocks() const {
    uint32_t blocks = 0, last = UINT32_MAX;
    for (const Slot& slot : view_) {
      if (slot.index / kv::kBlockTokens != last) ++blocks;
      last = slot.index / kv::kBlockTokens;
    }
    return blocks;
  }
  const ContentFold& fold() const { return fold_; }

 private:
  struct Slot {
    uint32_t index;
    uint64_t history;
    uint32_t position;  ///< That it is read with.
  };
  const uint64_t cache_namespace_;
  std::vector<Slot> view_;
  ContentFold fold_;
  uint32_t tokens_ = 0, next_position_ = 0;
};

}  // namespace

ContentSlot ReadSlot(const std::byte* frame, uint32_t slot) {
  ContentSlot content;
  std::memcpy(&content, frame + slot * kContentSlotBytes, sizeof content);
  return content;
}

void WriteSlot(std::byte* frame, uint32_t slot, const ContentSlot& content) {
  // All of it: a read that failed may have left anything there, and equal blocks have equal bytes.
  std::memset(frame + slot * kContentSlotBytes, 0, kContentSlotBytes);
  std::memcpy(frame + slot * kContentSlotBytes, &content, sizeof content);
}

ContentSlot ContentFold::Compute(uint64_t cache_namespace, TokenId token, uint32_t position) const {
  ContentSlot slot{.cache_namespace = cache_namespace, .token = token.value, .position = position};
  slot.history = Mix64(Mix64(value_ ^ cache_namespace) + (uint64_t{token.value} << 32 | position));
  slot.mark = slot.MarkOf();
  return slot;
}

TokenId ContentFold::Sample(const step::Sampling& sampling) const {
  const uint64_t draw = sampling.temperature == 0 ? value_ : Mix64(value_ ^ Mix64(sampling.seed));
  return TokenId{static_cast<uint32_t>(Prng(draw).Below(kContentVocab))};
}

ContentAnswer ExpectedAnswer(const engine::GenerationRequest& request, const ContentLimits& limits) {
  ContentAnswer answer;
  PlainText text(request.cache_namespace);
  uint32_t peak_tokens = 0, peak_blocks = 0, live = 0;
  const auto look = [&] {
    peak_tokens = std::max(peak_tokens, text.live_tokens());
    peak_blocks = std::max(peak_blocks, text.live_blocks());
  };
  size_t op = 0;
  const auto drop_due = [&] {
    for (; op < request.ops.size() && request.ops[op].at == text.tokens(); ++op) {
      look();
      text.Drop(request.ops[op]);
    }
  };
  for (const TokenId token : request.prompt) {
    drop_due();
    text.Add(token);
  }
  look();
  // The last token is computed with the view as it was; what is due after it goes before the next one.
  TokenId next = text.fold().Sample(request.sampling);
  drop_due();
  live = text.live_tokens();
  if (request.prompt.empty() || peak_tokens >= limits.context_tokens_max || peak_blocks > limits.frames) {
    answer.refused = true;
    return answer;
  }
  const uint32_t output_max = std::min(request.max_tokens, limits.context_tokens_max - live);
  for (uint32_t count = 1;; ++count) {
    if (next == kContentEnd && !request.ignore_eos) {
      answer.finish = engine::FinishReason::kStop;
      return answer;
    }
    answer.tokens.push_back(next);
    if (count >= output_max) break;
    text.Add(next);
    // Operations may leave blocks partly used: the output ends where there are no more.
    if (!request.ops.empty() && text.live_blocks() > limits.frames) break;
    next = text.fold().Sample(request.sampling);
  }
  answer.finish = engine::FinishReason::kLength;
  return answer;
}

std::vector<TokenId> ContentTokenizer::Encode(std::string_view text, const EncodeOptions& /*options*/) const {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < text.size(); ++i) {
    tokens.push_back(Find(text.substr(i, 1)).value_or(TokenId{kContentVocab - 1}));
  }
  return tokens;
}

std::string ContentTokenizer::TokenBytes(TokenId id, bool render_control) const {
  return IsControl(id) && !render_control ? "" : std::string(Piece(id));
}

std::string ContentTokenizer::Decode(std::span<const TokenId> ids, bool render_control) const {
  std::string text;
  for (const TokenId id : ids) text += TokenBytes(id, render_control);
  return text;
}

std::optional<TokenId> ContentTokenizer::Find(std::string_view piece) const {
  const size_t at = piece.size() == 1 ? kLetters.find(piece[0]) : std::string_view::npos;
  return at == std::string_view::npos ? std::nullopt : std::optional(TokenId{static_cast<uint32_t>(at)});
}

std::string_view ContentTokenizer::Piece(TokenId id) const {
  return kLetters.substr(id.value, 1);
}

}  // namespace kvist::lab
