/// @file
/// The public vocabularies: expected ids, round trips. Skipped where the data are absent.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_split.h"
#include "base/prng.h"
#include "modelfile/gguf.h"
#include "modelfile/tokenizer.h"

namespace kvist {
namespace {

std::string DataDir() {
  const char* set = std::getenv("KVIST_SHARED_DATA");
  return set != nullptr ? set : KVIST_SOURCE_DIR "/../shared/data";
}

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// `.inp`: every text is followed by a line of its own.
std::vector<std::string> Texts(const std::string& inp) {
  std::vector<std::string> texts = absl::StrSplit(ReadAll(inp), "\n__ggml_vocab_test__\n");
  EXPECT_EQ(texts.back(), "");
  texts.pop_back();
  return texts;
}

/// `.out`: one line a text, ids separated by spaces.
std::vector<std::vector<TokenId>> Ids(const std::string& out) {
  std::vector<std::vector<TokenId>> lines;
  std::istringstream in(ReadAll(out));
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    lines.emplace_back();
    for (uint32_t id; words >> id;) lines.back().push_back(TokenId{id});
  }
  return lines;
}

std::vector<uint32_t> Values(const std::vector<TokenId>& ids) {
  std::vector<uint32_t> values;
  for (TokenId id : ids) values.push_back(id.value);
  return values;
}

class PublicVocabulary : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = DataDir() + "/vocab/ggml-vocab-" + GetParam() + ".gguf";
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << path_ << " is absent";
    auto file = GgufFile::Open(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    auto tokenizer = Tokenizer::FromGguf(**file);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
  }

  std::string path_;
  std::unique_ptr<const Tokenizer> tokenizer_;
};

TEST_P(PublicVocabulary, GivesTheExpectedIds) {
  const auto texts = Texts(path_ + ".inp");
  const auto expected = Ids(path_ + ".out");
  ASSERT_EQ(texts.size(), expected.size());
  ASSERT_GT(texts.size(), 40u);
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto ids = tokenizer_->Encode(texts[i], {.add_special = false});
    EXPECT_EQ(Values(ids), Values(expected[i])) << "text " << i << ": " << texts[i];
    EXPECT_EQ(tokenizer_->Decode(ids), texts[i]);
  }
}

TEST_P(PublicVocabulary, DecodeGivesRandomBytesBack) {
  Prng random(7);
  std::string text;
  for (int i = 0; i < 200'000; ++i) text.push_back(static_cast<char>(random.Below(256)));
  std::string expected = text;
  // DeepSeek LLM has no tokens for the thirteen bytes that UTF-8 never uses.
  if (std::string_view(GetParam()) == "deepseek-llm") {
    expected.clear();
    for (const char c : text) {
      const auto b = static_cast<uint8_t>(c);
      if (b == 0xC0 || b == 0xC1 || b >= 0xF5) {
        expected += "\xEF\xBF\xBD";
      } else {
        expected += c;
      }
    }
  }
  EXPECT_TRUE(tokenizer_->Decode(tokenizer_->Encode(text, {.add_special = false})) == expected);
}

INSTANTIATE_TEST_SUITE_P(All, PublicVocabulary,
                         testing::Values("llama-spm", "llama-bpe", "gpt-2", "phi-3", "qwen2", "deepseek-llm"),
                         [](const auto& param) {
                           std::string name = param.param;
                           for (char& c : name) {
                             if (c == '-') c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace kvist
