#pragma once

/// @file
/// Keys and values of a simulated model: what lies in the slot of a token is a hash of everything that the token's keys
/// and values depend on, and the token that is sampled is a function of all slots in view. So one slot that is lost,
/// stale, doubled or somebody else's changes the answer, and the right answer follows from the request alone. Pure.
/// Threads: none shared.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/prng.h"
#include "engine/generation.h"
#include "kv/page_layout.h"
#include "modelfile/tokenizer.h"

namespace kvist::lab {

inline constexpr uint32_t kContentVocab = 61;
inline constexpr TokenId kContentEnd{0};  ///< Ends a generation.

/// A frame holds kBlockTokens slots; a drive wants its bytes in whole pages.
inline constexpr uint64_t kContentFrameBytes = 4096;
inline constexpr uint64_t kContentSlotBytes = kContentFrameBytes / kv::kBlockTokens;

/// What a slot holds in place of keys and values.
struct ContentSlot {
  uint64_t history = 0;
  uint64_t cache_namespace = 0;
  uint32_t token = 0, position = 0;
  uint64_t mark = 0;  ///< Of the others: a slot that was never written, or only in part, has another.

  uint64_t MarkOf() const {
    return Mix64(history ^ Mix64(cache_namespace ^ Mix64(uint64_t{token} << 32 | position))) | 1;
  }
};

ContentSlot ReadSlot(const std::byte* frame, uint32_t slot);
void WriteSlot(std::byte* frame, uint32_t slot, const ContentSlot& content);

/// A view as attention sees it: slots in order, each at the position it is read with.
class ContentFold {
 public:
  void Read(uint64_t history, uint32_t position) { value_ = Mix64(value_ ^ Mix64(history + position)); }

  /// Of the next token of a text with this view before it.
  ContentSlot Compute(uint64_t cache_namespace, TokenId token, uint32_t position) const;
  /// After the last token's slot was read.
  TokenId Sample(const step::Sampling& sampling) const;

 private:
  uint64_t value_ = 0x6b76697374;
};

/// What bounds answers on a worker.
struct ContentLimits {
  uint32_t context_tokens_max = 0, frames = 0;
};

struct ContentAnswer {
  bool refused = false;  ///< It can never run.
  std::vector<TokenId> tokens;
  engine::FinishReason finish = engine::FinishReason::kNone;
};

/// The answer of a machine that does this request alone and keeps its view in a plain list. REQUIRES: no tenant bound,
/// grammar or stop strings; operations inside the prompt.
ContentAnswer ExpectedAnswer(const engine::GenerationRequest& request, const ContentLimits& limits);

/// A letter for each token.
class ContentTokenizer final : public Tokenizer {
 public:
  std::vector<TokenId> Encode(std::string_view text, const EncodeOptions& options) const override;
  std::string TokenBytes(TokenId id, bool render_control) const override;
  std::string Decode(std::span<const TokenId> ids, bool render_control) const override;
  uint32_t vocab_size() const override { return kContentVocab; }
  std::optional<TokenId> bos() const override { return std::nullopt; }
  std::optional<TokenId> eos() const override { return kContentEnd; }
  bool adds_bos() const override { return false; }
  bool adds_eos() const override { return false; }
  bool adds_space_prefix() const override { return false; }
  bool IsControl(TokenId id) const override { return id == kContentEnd; }
  bool IsBreak(TokenId id) const override { return id == kContentEnd; }
  bool IsEndOfGeneration(TokenId id) const override { return id == kContentEnd; }
  std::optional<TokenId> Find(std::string_view piece) const override;
  std::string_view Piece(TokenId id) const override;
};

}  // namespace kvist::lab
