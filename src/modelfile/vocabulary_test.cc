/// @file
/// Malformed vocabularies: each a clear error that names the key, never a crash.

#include "modelfile/vocabulary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "modelfile/tokenizer_testutil.h"

namespace kvist {
namespace {

struct Fault {
  const char* name;
  bool gpt2;
  std::function<void(VocabularySpec&)> break_it;
  absl::StatusCode code;
  const char* message;  ///< Part of it.
};

const Fault kFaults[] = {
    {"no_model", false, [](auto& v) { v.model.reset(); }, absl::StatusCode::kNotFound, "tokenizer.ggml.model"},
    {"other_model", false, [](auto& v) { v.model = "t5\xFF"; }, absl::StatusCode::kUnimplemented, "\"t5\\xff\""},
    {"other_pre", true, [](auto& v) { v.pre = "chameleon"; }, absl::StatusCode::kUnimplemented, "\"chameleon\""},
    {"no_tokens", false, [](auto& v) { v.tokens.reset(); }, absl::StatusCode::kNotFound, "tokenizer.ggml.tokens"},
    {"zero_tokens", false, [](auto& v) { v.tokens->clear(); }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.tokens"},
    {"huge_token", false, [](auto& v) { v.tokens->at(270).assign(100'000, 'x'); }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.tokens[270]: token of 100000 bytes"},
    {"few_types", false, [](auto& v) { v.types->pop_back(); }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.token_type: "},
    {"many_types", true, [](auto& v) { v.types->push_back(1); }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.token_type: "},
    {"type_zero", true, [](auto& v) { v.types->at(3) = 0; }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.token_type[3]: unknown token type 0"},
    {"type_negative", true, [](auto& v) { v.types->at(4) = -7; }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.token_type[4]: unknown token type -7"},
    {"no_scores", false, [](auto& v) { v.scores.reset(); }, absl::StatusCode::kNotFound, "tokenizer.ggml.scores"},
    {"few_scores", false, [](auto& v) { v.scores->pop_back(); }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.scores: "},
    {"score_not_a_number", false, [](auto& v) { v.scores->at(9) = std::nanf(""); }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.scores[9]"},
    {"byte_negative", false, [](auto& v) { v.tokens->at(6) = "<0x-1>"; }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.tokens[6]: byte token \"<0x-1>\""},
    {"byte_not_hex", false, [](auto& v) { v.tokens->at(6) = "<0xZZ>"; }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.tokens[6]: byte token \"<0xZZ>\""},
    {"byte_too_long", false, [](auto& v) { v.tokens->at(6) = "<0x123>"; }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.tokens[6]: byte token \"<0x123>\""},
    {"byte_empty", false, [](auto& v) { v.tokens->at(6) = ""; }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.tokens[6]: byte token \"\""},
    {"bos_out_of_range", false, [](auto& v) { v.bos = static_cast<uint32_t>(v.tokens->size()); },
     absl::StatusCode::kInvalidArgument, "tokenizer.ggml.bos_token_id"},
    {"eos_out_of_range", true, [](auto& v) { v.eos = UINT32_MAX; }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.eos_token_id"},
    {"eot_out_of_range", true, [](auto& v) { v.eot = 1u << 31; }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.eot_token_id"},
    {"eom_out_of_range", true, [](auto& v) { v.eom = 1u << 30; }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.eom_token_id"},
    {"unknown_out_of_range", false, [](auto& v) { v.unknown = 99'999; }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.unknown_token_id"},
    {"padding_out_of_range", false, [](auto& v) { v.padding = 99'999; }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.padding_token_id"},
    {"no_merges", true, [](auto& v) { v.merges.reset(); }, absl::StatusCode::kNotFound, "tokenizer.ggml.merges"},
    {"merge_without_space", true, [](auto& v) { v.merges->at(2) = "er"; }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.merges[2]: \"er\""},
    {"merge_without_right", true, [](auto& v) { v.merges->at(2) = "e "; }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.merges[2]: \"e \""},
    {"merge_empty", true, [](auto& v) { v.merges->at(0) = ""; }, absl::StatusCode::kInvalidArgument,
     "tokenizer.ggml.merges[0]: \"\""},
    {"merge_huge", true, [](auto& v) { v.merges->at(1) = std::string(100'000, 'x') + " y"; },
     absl::StatusCode::kInvalidArgument, "tokenizer.ggml.merges[1]"},
};

class MalformedVocabulary : public testing::TestWithParam<Fault> {};

TEST_P(MalformedVocabulary, IsAClearError) {
  const Fault& fault = GetParam();
  VocabularySpec spec = fault.gpt2 ? SmallGpt2() : SmallSpm();
  ASSERT_TRUE(spec.Load().ok());
  fault.break_it(spec);
  const auto tokenizer = spec.Load();
  ASSERT_FALSE(tokenizer.ok());
  const std::string message(tokenizer.status().message());
  EXPECT_EQ(tokenizer.status().code(), fault.code) << message;
  EXPECT_NE(message.find(fault.message), std::string::npos) << message;
  EXPECT_EQ(message.rfind("spec: ", 0), 0u) << message;
  EXPECT_LT(message.size(), 300u);
}

INSTANTIATE_TEST_SUITE_P(All, MalformedVocabulary, testing::ValuesIn(kFaults),
                         [](const auto& fault) { return std::string(fault.param.name); });

TEST(Vocabulary, WrongTypesOfKeysAreErrors) {
  VocabularySpec spec = SmallSpm();
  spec.scores.reset();
  const std::string image = [&] {
    std::string bytes = spec.Image();
    // The key's spelling stays as long, so the array of i32 types takes the place of the scores.
    const size_t at = bytes.find("tokenizer.ggml.token_type");
    bytes.replace(at, 25, "tokenizer.ggml.scores____");
    return bytes;
  }();
  const auto file = GgufFile::Parse(std::as_bytes(std::span(image.data(), image.size())), "spec");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE(Tokenizer::FromGguf(**file).ok());
}

TEST(Vocabulary, ToleratesWhatPublishedFilesHave) {
  VocabularySpec empty_entry = SmallGpt2();
  empty_entry.Add("");
  EXPECT_TRUE(empty_entry.Load().ok());
  VocabularySpec no_types = SmallSpm();
  no_types.types.reset();
  const auto old_file = no_types.Load();
  ASSERT_TRUE(old_file.ok()) << old_file.status();
  EXPECT_EQ((*old_file)->Decode((*old_file)->Encode("ß the", {.add_special = false})), "ß the");
  VocabularySpec equal_merges = SmallGpt2();
  equal_merges.merges->push_back(equal_merges.merges->front());
  EXPECT_TRUE(equal_merges.Load().ok());
  VocabularySpec infinite = SmallSpm();
  infinite.scores->back() = -INFINITY;
  EXPECT_TRUE(infinite.Load().ok());
}

}  // namespace
}  // namespace kvist
