#include "lab/synth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <thread>

#include "lab/synth_blocks.h"
#include "modelfile/inspect.h"
#include "modelstore/sha256.h"
#include "platform/temp_folder.h"
#include "runtime/runtime.h"
#include "tensor/dequantize.h"

namespace kvist::lab {
namespace {

constexpr uint32_t kLayers = 2, kVocab = 640, kExperts = 5;

SynthOptions Small(std::string shape, std::string type) {
  return {.shape = std::move(shape),
          .type = std::move(type),
          .layers = kLayers,
          .vocab = kVocab,
          .experts = kExperts,
          .threads = 2};
}

class TempModel {
 public:
  TempModel() {
    absl::StatusOr<TempFolder> folder = TempFolder::Create(testing::TempDir());
    EXPECT_TRUE(folder.ok()) << folder.status();
    folder_.emplace(*std::move(folder));
  }
  std::string path(const char* name = "model.gguf") const { return folder_->path() + "/" + name; }

 private:
  std::optional<TempFolder> folder_;
};

/// Logits of the last of `tokens`.
std::vector<float> LastLogits(runtime::Runtime& runtime, const std::vector<TokenId>& tokens) {
  const uint32_t count = static_cast<uint32_t>(tokens.size());
  runtime.memory->Begin(RequestId{1}, 0, {});
  EXPECT_TRUE(runtime.memory->Reserve(RequestId{1}, count));
  step::StepPlan plan;
  plan.id = StepId{0};
  for (TokenId token : tokens) plan.tokens.push_back({token});
  const SpanId span = runtime.memory->SpanOf(RequestId{1});
  plan.segments.push_back({span, 0, count});
  plan.slices.push_back({.request = RequestId{1},
                         .tokens_count = count,
                         .segments_count = 1,
                         .tail = span,
                         .commit_count = count,
                         .logits_rows = 1});
  EXPECT_TRUE(runtime.executor->Submit(std::move(plan)).ok());
  while (true) {
    auto result = runtime.executor->Poll();
    EXPECT_TRUE(result.ok());
    if (!result.ok()) return {};
    if (result->has_value()) return (*result)->logits;
    std::this_thread::yield();
  }
}

void ExpectUsable(const std::string& path) {
  auto runtime = runtime::Start({.model_path = path, .threads = 2, .context_tokens_max = 64});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const std::vector<TokenId> tokens = (*runtime)->tokenizer->Encode("then the\nend \xC3\xA9", {.add_special = false});
  ASSERT_GT(tokens.size(), 3u);
  EXPECT_EQ((*runtime)->tokenizer->Decode(tokens), "then the\nend \xC3\xA9");
  EXPECT_EQ((*runtime)->tokenizer->vocab_size(), kVocab);
  EXPECT_TRUE((*runtime)->chat_template.has_value());
  const std::vector<float> logits = LastLogits(**runtime, tokens);
  ASSERT_EQ(logits.size(), kVocab);
  double squares = 0;
  for (float logit : logits) {
    ASSERT_TRUE(std::isfinite(logit));
    squares += double{logit} * logit;
  }
  const double deviation = std::sqrt(squares / kVocab);
  EXPECT_GT(deviation, 0.1);  // Neither collapsed nor overflowing.
  EXPECT_LT(deviation, 10);
}

class SynthType : public testing::TestWithParam<std::string> {};

TEST_P(SynthType, EveryShapeLoadsAndComputes) {
  const TempModel model;
  for (const SynthShape& shape : SynthShapes()) {
    SCOPED_TRACE(shape.name);
    auto result = WriteSynthModel(Small(std::string(shape.name), GetParam()), model.path());
    ASSERT_TRUE(result.ok()) << result.status();
    auto file = GgufFile::Open(model.path());
    ASSERT_TRUE(file.ok()) << file.status();
    const ModelSummary summary = Summarize(**file);
    EXPECT_EQ(summary.architecture, shape.architecture);
    EXPECT_EQ(summary.block_count, kLayers);
    EXPECT_EQ(summary.embedding_length, shape.width);
    EXPECT_EQ(summary.feed_forward_length, shape.ffn_width);
    EXPECT_EQ(summary.head_count, shape.heads);
    EXPECT_EQ(summary.head_count_kv, shape.kv_heads);
    EXPECT_EQ(summary.key_length, shape.head_width);
    EXPECT_EQ(summary.vocab_size, kVocab);
    EXPECT_EQ(summary.expert_count, shape.experts > 0 ? std::optional(kExperts) : std::nullopt);
    EXPECT_EQ(summary.parameters, result->parameters);
    EXPECT_EQ((*file)->file_bytes(), result->file_bytes);
    ExpectUsable(model.path());
  }
}

INSTANTIATE_TEST_SUITE_P(Types, SynthType, testing::ValuesIn(SynthTypes()),
                         [](const auto& type) { return type.param; });

TEST(Synth, BytesDependOnTheSeedAndNotOnThreads) {
  const TempModel model;
  const auto hash = [&](uint64_t seed, uint32_t threads) {
    SynthOptions options = Small("smollm2-135m", "q4_k");
    options.seed = seed;
    options.threads = threads;
    EXPECT_TRUE(WriteSynthModel(options, model.path()).ok());
    return modelstore::Sha256OfFile(model.path()).value_or("");
  };
  const std::string first = hash(7, 1);
  EXPECT_EQ(first.size(), 64u);
  EXPECT_EQ(hash(7, 3), first);
  EXPECT_NE(hash(8, 1), first);
}

TEST(Synth, KeepsTheFinerTypesOfPublicFiles) {
  const TempModel model;
  ASSERT_TRUE(WriteSynthModel(Small("llama-3.2-1b", "q4_k"), model.path()).ok());
  auto file = GgufFile::Open(model.path());
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->FindTensor("token_embd.weight")->dtype, DType::kQ6_K);
  EXPECT_EQ((*file)->FindTensor("blk.1.ffn_down.weight")->dtype, DType::kQ4_K);
  EXPECT_EQ((*file)->FindTensor("output_norm.weight")->dtype, DType::kF32);
  EXPECT_NE((*file)->FindTensor("rope_freqs.weight"), nullptr);
  // 576 columns are no multiple of 256.
  ASSERT_TRUE(WriteSynthModel(Small("smollm2-135m", "q4_k_m"), model.path()).ok());
  file = GgufFile::Open(model.path());
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->FindTensor("token_embd.weight")->dtype, DType::kQ8_0);
  EXPECT_EQ((*file)->FindTensor("blk.0.attn_q.weight")->dtype, DType::kQ5_0);
  EXPECT_EQ((*file)->FindTensor("blk.1.ffn_down.weight")->dtype, DType::kQ6_K);
}

TEST(Synth, WrongOptionsAndInterruptsLeaveNoFile) {
  const TempModel model;
  SynthOptions options = Small("smollm2-135m", "q8_0");
  options.progress = [](uint64_t done, uint64_t) { return done < 100000; };
  EXPECT_TRUE(absl::IsCancelled(WriteSynthModel(options, model.path()).status()));
  EXPECT_TRUE(absl::IsNotFound(WriteSynthModel(Small("nothing", "q8_0"), model.path()).status()));
  EXPECT_TRUE(absl::IsNotFound(WriteSynthModel(Small("smollm2-135m", "q9"), model.path()).status()));
  options = Small("qwen3moe-small", "q8_0");
  options.experts = 3;  // Four are used.
  EXPECT_TRUE(absl::IsInvalidArgument(WriteSynthModel(options, model.path()).status()));
  options = Small("smollm2-135m", "q8_0");
  options.vocab = 100;
  EXPECT_TRUE(absl::IsInvalidArgument(WriteSynthModel(options, model.path()).status()));
  EXPECT_TRUE(std::filesystem::is_empty(std::filesystem::path(model.path()).parent_path()));
}

TEST(SynthBlocks, WeightsHaveTheWantedSpread) {
  constexpr float kSigma = 0.03f;
  for (const std::string& name : SynthTypes()) {
    const std::optional<DTypeInfo> info = FindDType(name);
    if (!info) continue;  // A mixture.
    ASSERT_TRUE(CanDraw(info->dtype));
    std::vector<std::byte> bytes(RowBytes(info->dtype, kSynthChunkElements));
    DrawChunk(info->dtype, 5, 3, kSigma, bytes);
    std::vector<float> weights(kSynthChunkElements);
    DequantizeRow(info->dtype, bytes.data(), weights.size(), weights.data());
    double sum = 0, squares = 0;
    for (float w : weights) {
      sum += w;
      squares += double{w} * w;
    }
    const double count = static_cast<double>(weights.size());
    EXPECT_NEAR(std::sqrt(squares / count) / kSigma, 1, 0.15) << name;
    EXPECT_NEAR(sum / count / kSigma, 0, 0.05) << name;
  }
}

}  // namespace
}  // namespace kvist::lab
