#include "engine/output_text.h"

#include <gtest/gtest.h>

#include "base/prng.h"
#include "base/status.h"

namespace kvist::engine {
namespace {

/// A vocabulary of single bytes: token id = byte.
class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<TokenId> Encode(std::string_view text, const EncodeOptions&) const override {
    std::vector<TokenId> ids;
    for (unsigned char c : text) ids.push_back(TokenId{c});
    return ids;
  }
  std::string TokenBytes(TokenId id, bool render_control) const override {
    if (IsControl(id)) return render_control ? Cat("<", id.value, ">") : "";
    return {static_cast<char>(id.value)};
  }
  std::string Decode(std::span<const TokenId> ids, bool) const override {
    std::string text;
    for (TokenId id : ids) text += TokenBytes(id, false);
    return text;
  }
  uint32_t vocab_size() const override { return 256; }
  std::optional<TokenId> bos() const override { return std::nullopt; }
  std::optional<TokenId> eos() const override { return std::nullopt; }
  bool adds_bos() const override { return false; }
  bool adds_eos() const override { return false; }
  bool adds_space_prefix() const override { return false; }
  bool IsControl(TokenId id) const override { return id.value < 2; }
  bool IsBreak(TokenId) const override { return false; }
  bool IsEndOfGeneration(TokenId) const override { return false; }
  std::optional<TokenId> Find(std::string_view) const override { return std::nullopt; }
  std::string_view Piece(TokenId) const override { return ""; }
};

/// Text after each byte, then after Finish.
std::vector<std::string> Feed(std::string_view text, std::vector<std::string> stop) {
  ByteTokenizer tokenizer;
  OutputText output(tokenizer, std::move(stop), false);
  std::vector<std::string> seen;
  std::string shown;
  for (TokenId id : tokenizer.Encode(text, {})) {
    const bool stopped = output.Push({id});
    GenerationEvent event;
    output.TakeReady(event);
    shown += event.text;
    seen.push_back(shown);
    if (stopped) break;
  }
  output.Finish();
  GenerationEvent event;
  output.TakeReady(event);
  seen.push_back(shown + event.text);
  return seen;
}

TEST(OutputText, NothingOfAStopStringIsEverShown) {
  std::vector<std::string> seen = Feed("abcSTOPxyz", {"STOP"});
  EXPECT_EQ(seen.back(), "abc");
  for (const std::string& text : seen) EXPECT_EQ(text.find('S'), std::string::npos);
}

TEST(OutputText, AFalseStartIsShownOnceItIsOne) {
  EXPECT_EQ(Feed("aSTOaSTO", {"STOP"}).back(), "aSTOaSTO");
  EXPECT_EQ(Feed("SSTOP!", {"STOP"}).back(), "S");
  EXPECT_EQ(Feed("aaab", {"aab"}).back(), "a");
}

TEST(OutputText, TheEarliestOfSeveralStopsWins) {
  EXPECT_EQ(Feed("one two three", {"three", "two", " tw"}).back(), "one");
}

TEST(OutputText, NeverHalfACharacter) {
  for (const std::string& text : Feed("a\xF0\x9F\x98\x80z", {})) {
    EXPECT_TRUE(text == "a" || text == "a\xF0\x9F\x98\x80" || text == "a\xF0\x9F\x98\x80z") << text;
  }
  EXPECT_EQ(Feed("a\xF0\x9F", {}).back(), "a\xEF\xBF\xBD");
}

TEST(OutputText, RandomTextAgainstPlainSearch) {
  Prng prng(5);
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (uint64_t n = prng.Below(30); n > 0; --n) text += static_cast<char>('a' + prng.Below(2));
    std::vector<std::string> stops;
    for (uint64_t n = prng.Below(3); n > 0; --n) {
      std::string stop;
      for (uint64_t m = 1 + prng.Below(5); m > 0; --m) stop += static_cast<char>('a' + prng.Below(2));
      stops.push_back(stop);
    }
    // The stop whose last byte comes first ends the text; of those, the one that begins first.
    size_t end = std::string::npos, cut = text.size();
    for (const std::string& stop : stops) {
      const size_t at = text.find(stop);
      if (at == std::string::npos) continue;
      if (end == std::string::npos || at + stop.size() < end || (at + stop.size() == end && at < cut)) {
        end = at + stop.size();
        cut = at;
      }
    }
    ASSERT_EQ(Feed(text, stops).back(), text.substr(0, end == std::string::npos ? text.size() : cut)) << text;
  }
}

TEST(OutputText, OnlyTheControlTokensThatAreAskedForAreShown) {
  const ByteTokenizer tokenizer;
  OutputText output(tokenizer, {}, false, {TokenId{1}});
  for (const uint32_t id : {'a', '\0', 'b', '\1', 'c'}) output.Push({.token = TokenId{id}, .logprob = 0, .top = {}});
  output.Finish();
  GenerationEvent event;
  output.TakeReady(event);
  EXPECT_EQ(event.text, "ab<1>c");
  EXPECT_EQ(event.token_ids.size(), 5u);
}

}  // namespace
}  // namespace kvist::engine
