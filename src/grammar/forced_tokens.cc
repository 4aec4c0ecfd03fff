#include "grammar/forced_tokens.h"

#include <algorithm>
#include <string>

namespace kvist::grammar {
namespace {

constexpr size_t kForcedBytesMax = 1024;
constexpr size_t kProbesMax = 16;

/// Tokens of `text`, which `probe` may follow.
std::vector<TokenId> Encode(const Matcher& matcher, const Tokenizer& tokenizer, std::string_view text,
                            std::string_view probe = "") {
  std::string whole(text);
  whole += probe;
  return tokenizer.Encode(whole, {.add_special = false, .parse_special = false, .continues = !matcher.strips_space()});
}

/// How many of `tokens`, those of `text`, stay whatever follows.
size_t StableCount(const Matcher& matcher, const Tokenizer& tokenizer, std::string_view text,
                   std::span<const TokenId> tokens) {
  size_t stable = tokens.size() - 1;  // A longer token may begin with the last one.
  for (const char next : matcher.BytesAfter(text, kProbesMax)) {
    const std::vector<TokenId> other = Encode(matcher, tokenizer, text, std::string_view(&next, 1));
    stable = std::min(stable, static_cast<size_t>(std::ranges::mismatch(tokens, other).in1 - tokens.begin()));
  }
  return stable;
}

}  // namespace

std::vector<TokenId> ForcedTokens(const Matcher& matcher, const Tokenizer& tokenizer, size_t max) {
  const std::string forced = matcher.ForcedBytes(kForcedBytesMax);
  if (forced.size() < 2) return {};
  const size_t text_end = std::min(forced.find(static_cast<char>(kControlMark)), forced.size());
  std::vector<TokenId> tokens;
  if (text_end == 0) {
    if (forced.size() < kControlBytes) return {};
    uint32_t id = 0;
    for (size_t i = 1; i < kControlBytes; ++i) id = id << 8 | static_cast<uint8_t>(forced[i]);
    tokens.push_back(TokenId{id});
  } else {
    const std::string_view text = std::string_view(forced).substr(0, text_end);
    tokens = Encode(matcher, tokenizer, text);
    if (tokens.empty()) return {};
    // Before a control token, and at the grammar's end, nothing can be joined to it.
    Matcher ahead = matcher;
    size_t accepted = 0;
    while (accepted < tokens.size() && ahead.Accept(tokens[accepted])) ++accepted;
    const bool ends = accepted == tokens.size() && (text_end < forced.size() || ahead.IsDone());
    if (!ends) tokens.resize(StableCount(matcher, tokenizer, text, tokens));
  }
  tokens.resize(std::min(tokens.size(), max));
  // What the vocabulary cannot spell is not skipped.
  Matcher ahead = matcher;
  size_t accepted = 0;
  while (accepted < tokens.size() && ahead.Accept(tokens[accepted])) ++accepted;
  tokens.resize(accepted);
  return tokens;
}

}  // namespace kvist::grammar
