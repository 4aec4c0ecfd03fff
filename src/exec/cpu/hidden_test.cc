/// @file
/// The state that a slice may ask for is what the head reads.

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "exec/cpu/executor_testutil.h"
#include "exec/cpu/golden_testutil.h"
#include "modelfile/gguf.h"
#include "tensor/dequantize.h"

namespace kvist::exec {
namespace {

constexpr char kModel[] = KVIST_SOURCE_DIR "/models/default-f16.gguf";

std::vector<TokenId> Text(uint32_t count) {
  std::vector<TokenId> tokens;
  for (uint32_t i = 0; i < count; ++i) tokens.push_back(TokenId{20 + i * 7 % 400});
  return tokens;
}

/// Reads `tokens` in chunks; the last one asks for the state, and for logits where they are wanted.
step::StepResult Read(TestExecutor& executor, const std::vector<TokenId>& tokens, uint32_t chunk, bool with_logits) {
  const RequestId id{1000 + chunk};
  executor.memory().Begin(id, 0, tokens);
  step::StepResult result;
  for (uint32_t done = 0; done < tokens.size();) {
    const uint32_t count = std::min<uint32_t>(chunk, static_cast<uint32_t>(tokens.size()) - done);
    const bool last = done + count == tokens.size();
    EXPECT_TRUE(executor.memory().Reserve(id, done + count));
    step::StepPlan plan;
    plan.slices.push_back({.request = id,
                           .position = done,
                           .tokens_count = count,
                           .segments_count = 1,
                           .tail = executor.memory().SpanOf(id),
                           .tail_begin = done,
                           .commit_count = count,
                           .want_hidden = last,
                           .logits_rows = last && with_logits ? 1u : 0u});
    plan.segments.push_back({executor.memory().SpanOf(id), 0, done + count});
    for (uint32_t t = 0; t < count; ++t) plan.tokens.push_back({tokens[done + t]});
    result = executor.Execute(std::move(plan));
    executor.memory().Commit(id, std::span(tokens).subspan(done, count));
    done += count;
  }
  executor.memory().End(id);
  return result;
}

TEST(Hidden, GivesTheLogitsThroughTheHead) {
  TestExecutor executor(kModel, {});
  const step::StepResult result = Read(executor, Text(40), 16, /*with_logits=*/true);
  const uint32_t width = executor.executor().Limits().hidden_size;
  ASSERT_EQ(result.hidden.size(), width);
  const auto file = GgufFile::Open(kModel);
  ASSERT_TRUE(file.ok());
  const GgufTensor* head = (*file)->FindTensor("output.weight");
  if (head == nullptr) head = (*file)->FindTensor("token_embd.weight");
  ASSERT_NE(head, nullptr);
  ASSERT_EQ(head->dims[0], width);
  std::vector<float> row(width);
  const size_t row_bytes = head->bytes.size() / head->dims[1];
  for (uint32_t token = 0; token < executor.vocab(); token += 97) {
    DequantizeRow(head->dtype, head->bytes.data() + token * row_bytes, width, row.data());
    double sum = 0, mass = 0;
    for (uint32_t i = 0; i < width; ++i) {
      sum += double{row[i]} * result.hidden[i];
      mass += std::abs(double{row[i]} * result.hidden[i]);
    }
    EXPECT_NEAR(result.logits[token], sum, 1e-2 * mass + 1e-4) << token;
  }
}

/// Embeddings are these states, divided by their length: held against an independent implementation.
TEST(Hidden, MatchesTheIndependentImplementation) {
  for (const std::string name : {"f32", "llama", "qwen2", "qwen3", "gemma3", "phi3", "q8_0"}) {
    const boost::json::object golden = ReadJson(GoldenFolder() / (name + ".json"));
    TestExecutor executor(GoldenFolder() / (name + ".gguf"), {});
    const step::StepResult result = Read(executor, TokensOf(golden.at("tokens")), 72, /*with_logits=*/false);
    const boost::json::array& wanted = golden.at("last_state_f16_kv").as_array();
    ASSERT_EQ(result.hidden.size(), wanted.size()) << name;
    double dot = 0, ours = 0, theirs = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double want = wanted[i].to_number<double>(), got = result.hidden[i];
      dot += want * got;
      ours += got * got;
      theirs += want * want;
    }
    // Between vectors of length 1: the sine of the angle.
    const double cosine = dot / std::sqrt(ours * theirs);
    const bool quantised = name == "q8_0";
    EXPECT_LT(std::sqrt(std::max(0.0, 1 - cosine * cosine)),
              1.5 * golden.at(quantised ? "error_int8_activations" : "error_f16_kv").to_number<double>() + 1e-4)
        << name;
  }
}

TEST(Hidden, TheSameBitsHoweverTheTextIsCut) {
  TestExecutor one(kModel, {}), two(kModel, {.threads = 2});
  const std::vector<float> expected = Read(one, Text(40), 40, /*with_logits=*/false).hidden;
  EXPECT_EQ(Read(one, Text(40), 7, false).hidden, expected);
  EXPECT_EQ(Read(two, Text(40), 13, true).hidden, expected);
  EXPECT_NE(Read(one, Text(39), 39, false).hidden, expected);
}

}  // namespace
}  // namespace kvist::exec
