/// @file
/// Encoding takes time in proportion to the text, also for texts made to be hard. Loose, on processor time, and tried
/// again when a busy machine disturbs it.

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <map>

#include "base/prng.h"
#include "modelfile/tokenizer.h"
#include "modelfile/tokenizer_testutil.h"

namespace kvist {
namespace {

std::map<std::string, std::string> HardTexts(size_t bytes) {
  std::map<std::string, std::string> texts;
  texts["one letter"] = std::string(bytes, 'a');
  texts["spaces"] = std::string(bytes, ' ');
  texts["spaces, then a letter"] = std::string(bytes, ' ') + "\u4E2D";
  texts["newlines"] = std::string(bytes, '\n');
  texts["newline, then spaces"] = "\n" + std::string(bytes, ' ') + "x";
  texts["continuation bytes"] = std::string(bytes, '\x80');
  Prng random(1);
  for (size_t i = 0; i < bytes; ++i) {
    texts["any bytes"].push_back(static_cast<char>(random.Below(256)));
    texts["one word"].push_back(static_cast<char>('a' + random.Below(26)));
    texts["specials cut short"].push_back("<tool"[i % 5]);
  }
  while (texts["emoji"].size() < bytes) texts["emoji"] += "😀🚀";
  return texts;
}

double ProcessorSeconds(const Tokenizer& t, const std::string& text) {
  const auto now = [] {
    timespec at{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return static_cast<double>(at.tv_sec) + static_cast<double>(at.tv_nsec) * 1e-9;
  };
  const double begin = now();
  EXPECT_FALSE(t.Encode(text).empty());
  return now() - begin;
}

void ExpectLinear(const Tokenizer& t, const std::string& name) {
  const auto half = HardTexts(1 << 19), whole = HardTexts(1 << 20);
  for (const auto& [kind, text] : whole) {
    double best = 1e9;
    for (int attempt = 0; attempt < 6 && best >= 3.5; ++attempt) {
      const double small = ProcessorSeconds(t, half.at(kind));
      best = std::min(best, ProcessorSeconds(t, text) / std::max(small, 1e-4));
    }
    EXPECT_LT(best, 3.5) << name << ": " << kind;
  }
}

TEST(TokenizerSpeed, IsLinearInTheLengthOfHardTexts) {
  ExpectLinear(**SmallSpm().Load(), "llama");
  for (const char* pre : {"gpt-2", "deepseek-llm"}) ExpectLinear(**SmallGpt2(pre).Load(), pre);
}

}  // namespace
}  // namespace kvist
