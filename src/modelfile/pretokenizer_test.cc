/// @file
/// How each pre-tokeniser cuts; expectations follow from the published expressions.

#include "modelfile/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/prng.h"

namespace kvist {
namespace {

using testing::ElementsAre;

std::vector<std::string> Words(std::string_view name, std::string_view text) {
  const auto pretokenizer = Pretokenizer::ForName(name);
  EXPECT_TRUE(pretokenizer.ok()) << pretokenizer.status();
  std::vector<std::string> words;
  PretokenizerRun(*pretokenizer).Split(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

TEST(Pretokenizer, Gpt2) {
  EXPECT_THAT(Words("gpt-2", "I'll go  to 42nd st.\n\n x"),
              ElementsAre("I", "'ll", " go", " ", " to", " 42", "nd", " st", ".", "\n\n", " x"));
  EXPECT_THAT(Words("gpt-2", "don'T \u3000é\u00A0"), ElementsAre("don", "'", "T", " ", "\u3000", "é", "\u00A0"));
  // U+180E is no white space (it was until Unicode 6.3, and PCRE2's \s still has it).
  EXPECT_THAT(Words("gpt-2", "a\u180Eb"), ElementsAre("a", "\u180E", "b"));
}

TEST(Pretokenizer, Llama3) {
  EXPECT_THAT(Words("llama-bpe", "I'LL go  to 12345 x\r\n\n  y.)\n"),
              ElementsAre("I", "'LL", " go", " ", " to", " ", "123", "45", " x", "\r\n\n", " ", " y", ".)\n"));
  EXPECT_EQ(Words("llama3", "a 1234"), Words("llama-v3", "a 1234"));
}

TEST(Pretokenizer, Qwen2KeepsNoDigitsTogether) {
  EXPECT_THAT(Words("qwen2", "a 123 'Ve"), ElementsAre("a", " ", "1", "2", "3", " '", "Ve"));
}

TEST(Pretokenizer, SmollmCutsDigitsFirst) {
  EXPECT_THAT(Words("smollm", "ab12 34"), ElementsAre("ab", "1", "2", " ", "3", "4"));
}

TEST(Pretokenizer, DeepseekLlm) {
  EXPECT_THAT(Words("deepseek-llm", "Hello 世界 123!\n"),
              ElementsAre("Hello", " ", "世界", " ", "1", "2", "3", "!", "\n"));
  EXPECT_THAT(Words("deepseek-llm", "中   中   "), ElementsAre("中", "   ", "中", "   "));
  // White space in front of a letter or mark goes with it; Arabic letters are not in the list.
  EXPECT_THAT(Words("deepseek-llm", "  a ,  ب"), ElementsAre(" ", " a", " ,", "  ب"));
}

TEST(Pretokenizer, Default) {
  EXPECT_THAT(Words("default", "Hi, it's 12345 $x"),
              ElementsAre("Hi", ",", " it", "'", "s", " ", "123", "45", " ", "$", "x"));
}

TEST(Pretokenizer, BytesThatAreNoTextStandApart) {
  EXPECT_THAT(Words("gpt-2", "a\xFF\xFE b"), ElementsAre("a", "\xFF\xFE", " b"));
  EXPECT_THAT(Words("llama3", "\xE4\xB8"), ElementsAre("\xE4\xB8"));
}

TEST(Pretokenizer, UnknownNameIsUnimplementedAndNamed) {
  const auto pretokenizer = Pretokenizer::ForName("chameleon\n");
  EXPECT_TRUE(absl::IsUnimplemented(pretokenizer.status()));
  EXPECT_THAT(std::string(pretokenizer.status().message()), testing::HasSubstr("\"chameleon\\n\""));
}

TEST(Pretokenizer, WordsAreTheText) {
  Prng random(2);
  static constexpr std::string_view kUnits[] = {" ",  "  ",     "\n",   "\r\n",     "a",      "Z",     "é", "ب",
                                                "中", "1",      "٣",    "'s",       "'",      "!",     "$", "\t",
                                                "👍", "\u0301", "\xFF", "\xE4\xB8", "\u2028", "\u0085"};
  for (const char* name : {"gpt-2", "llama-bpe", "qwen2", "smollm", "deepseek-llm", "default"}) {
    for (int round = 0; round < 200; ++round) {
      std::string text, joined;
      for (uint64_t i = random.Below(80); i > 0; --i) text += kUnits[random.Below(std::size(kUnits))];
      for (const std::string& word : Words(name, text)) {
        EXPECT_FALSE(word.empty());
        joined += word;
      }
      EXPECT_EQ(joined, text);
    }
  }
}

}  // namespace
}  // namespace kvist
