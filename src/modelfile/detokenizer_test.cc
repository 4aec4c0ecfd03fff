/// @file
/// A stream of tokens as text: whole characters only, whatever the tokens are.

#include <gtest/gtest.h>

#include "base/prng.h"
#include "modelfile/tokenizer.h"
#include "modelfile/tokenizer_testutil.h"
#include "modelfile/tokenizer_utf8.h"

namespace kvist {
namespace {

std::vector<std::string> Stream(const Tokenizer& t, const std::vector<std::string>& pieces, bool render_control = false,
                                bool strip = false) {
  Detokenizer detokenizer(t, render_control, strip);
  std::vector<std::string> out;
  for (const std::string& piece : pieces) out.push_back(detokenizer.Push(*t.Find(piece)));
  out.push_back(detokenizer.Finish());
  return out;
}

using Texts = std::vector<std::string>;

TEST(Detokenizer, HoldsBackUntilACharacterIsWhole) {
  const auto t = *SmallSpm().Load();
  // U+1F44D is F0 9F 91 8D.
  EXPECT_EQ(Stream(*t, {"a", "<0xF0>", "<0x9F>", "<0x91>", "<0x8D>", "b"}), (Texts{"a", "", "", "", "👍", "b", ""}));
}

TEST(Detokenizer, ReplacesWhatCanBeNoCharacter) {
  const auto t = *SmallSpm().Load();
  EXPECT_EQ(Stream(*t, {"<0xFF>", "a"}), (Texts{"\uFFFD", "a", ""}));
  // A character that breaks off, by another token and by the end.
  EXPECT_EQ(Stream(*t, {"<0xF0>", "<0x9F>", "a"}), (Texts{"", "", "\uFFFDa", ""}));
  EXPECT_EQ(Stream(*t, {"<0xE4>", "<0xB8>"}), (Texts{"", "", "\uFFFD"}));
  // Surrogates and overlong forms are no characters: three and two replacements (Unicode 15, table 3-8).
  EXPECT_EQ(Stream(*t, {"<0xED>", "<0xA0>", "<0x80>"}), (Texts{"", "\uFFFD\uFFFD", "\uFFFD", ""}));
  EXPECT_EQ(Stream(*t, {"<0xC0>", "<0xAF>"}), (Texts{"\uFFFD", "\uFFFD", ""}));
}

TEST(Detokenizer, StripsTheAddedSpaceWhenTold) {
  const auto t = *SmallSpm().Load();
  EXPECT_EQ(Stream(*t, {"▁the", "▁cat"}), (Texts{" the", " cat", ""}));
  EXPECT_EQ(Stream(*t, {"▁the", "▁cat"}, false, true), (Texts{"the", " cat", ""}));
  EXPECT_EQ(Stream(*t, {"▁the", "<|end|>", "▁cat"}, true), (Texts{" the", "<|end|>", "cat", ""}));
  const auto gpt2 = *SmallGpt2().Load();
  EXPECT_EQ(Stream(*gpt2, {"Ġthe"}, false, true), (Texts{" the", ""}));
}

TEST(Detokenizer, AnyTokensGiveTheSameTextAsDecode) {
  Prng random(9);
  for (const auto& t : {*SmallSpm().Load(), *SmallGpt2().Load()}) {
    for (int round = 0; round < 500; ++round) {
      std::vector<TokenId> ids;
      for (uint64_t i = random.Below(60); i > 0; --i) {
        ids.push_back(TokenId{static_cast<uint32_t>(random.Below(t->vocab_size()))});
      }
      const bool render = round % 2 == 0;
      Detokenizer detokenizer(*t, render, true);
      std::string streamed;
      for (const TokenId id : ids) {
        const std::string text = detokenizer.Push(id);
        EXPECT_EQ(ValidUtf8Prefix(text), text.size());
        streamed += text;
      }
      streamed += detokenizer.Finish();
      std::string bytes = t->Decode(ids, render), expected;
      TakeCharacters(bytes, true, expected);
      EXPECT_EQ(streamed, expected);
    }
  }
}

}  // namespace
}  // namespace kvist
