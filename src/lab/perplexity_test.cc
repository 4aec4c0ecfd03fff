#include "lab/perplexity.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/fake_executor_testutil.h"
#include "runtime/runtime.h"

namespace kvist::lab {
namespace {

using ::testing::HasSubstr;
using Tokens = std::vector<TokenId>;

constexpr TokenId kLead{0}, kA{1}, kB{2};
constexpr double kLn2 = 0.69314718055994530942;

/// A model of three tokens: what follows depends on the token before only. Bits, so that sums can be made by hand:
/// P(A|lead) = 1/2, P(B|A) = 1/4, P(A|B) = 1/8; the rest is improbable.
int Bits(TokenId before, TokenId next) {
  if (before == kLead && next == kA) return 1;
  if (before == kA && next == kB) return 2;
  if (before == kB && next == kA) return 3;
  return 10;
}

/// Scores as the seam wants them, and checks that each step continues the sequence in `seen`.
class BigramModel {
 public:
  explicit BigramModel(uint32_t context_tokens_max = 64, uint32_t frames = 16)
      : executor_({.tokens_per_step_max = 8,
                   .slices_per_step_max = 1,
                   .block_tokens = kv::kBlockTokens,
                   .vocab_size = 3,
                   .context_tokens_max = context_tokens_max},
                  [this](const step::StepPlan& plan, step::StepResult& result) { Compute(plan, result); }),
        memory_({.frames_count = frames, .reuse = false}) {}

  absl::StatusOr<PerplexityResult> Measure(std::optional<TokenId> leading, const Tokens& text,
                                           const PerplexityOptions& options = {}) {
    absl::StatusOr<PerplexityResult> result = MeasurePerplexity(executor_, memory_, leading, text, options);
    EXPECT_EQ(memory_.counts().free, memory_.frames_count()) << "every frame comes back";
    return result;
  }
  uint64_t steps() const { return executor_.steps(); }

 private:
  void Compute(const step::StepPlan& plan, step::StepResult& result) {
    ASSERT_EQ(plan.slices.size(), 1u);
    const step::Slice& slice = plan.slices[0];
    if (slice.position == 0) seen_ = 0;
    EXPECT_EQ(slice.position, seen_) << "a gap in the sequence";
    EXPECT_EQ(plan.segments.at(0).tokens_count, slice.position + slice.tokens_count);
    seen_ += slice.tokens_count;
    ASSERT_EQ(plan.score_targets.size(), slice.scores_count);
    for (uint32_t i = 0; i < slice.scores_count; ++i) {
      const TokenId before = plan.tokens[slice.scores_row + i].known;
      result.scores.push_back(static_cast<float>(-Bits(before, plan.score_targets[i]) * kLn2));
    }
  }

  uint32_t seen_ = 0;
  FakeExecutor executor_;
  kv::KvMemory memory_;
};

TEST(Perplexity, IsTheValueMadeByHand) {
  BigramModel model;
  const auto led = model.Measure(kLead, {kA, kB, kA, kB});  // 1 + 2 + 3 + 2 bits.
  ASSERT_TRUE(led.ok()) << led.status();
  EXPECT_EQ(led->tokens, 4u);
  EXPECT_EQ(led->windows, 1u);
  EXPECT_NEAR(led->nll_sum, 8 * kLn2, 1e-6);
  EXPECT_NEAR(led->Perplexity(), 4.0, 1e-6);

  const auto bare = model.Measure(std::nullopt, {kA, kB, kA, kB});  // Nothing stands before the first: 2 + 3 + 2.
  ASSERT_TRUE(bare.ok()) << bare.status();
  EXPECT_EQ(bare->tokens, 3u);
  EXPECT_NEAR(bare->Perplexity(), std::exp2(7.0 / 3), 1e-6);
}

TEST(Perplexity, WindowsCountEveryTokenOnce) {
  BigramModel model;
  const Tokens text{kA, kB, kA, kB};
  const auto apart = model.Measure(kLead, text, {.window_tokens = 3});  // lead A B, lead A B: 1 + 2 + 1 + 2.
  ASSERT_TRUE(apart.ok()) << apart.status();
  EXPECT_EQ(apart->windows, 2u);
  EXPECT_EQ(apart->tokens, 4u);
  EXPECT_NEAR(apart->nll_sum, 6 * kLn2, 1e-6);

  // lead A B, (lead B) A, (lead A) B: what is in brackets was counted before.
  const auto overlap = model.Measure(kLead, text, {.window_tokens = 3, .stride_tokens = 1});
  ASSERT_TRUE(overlap.ok()) << overlap.status();
  EXPECT_EQ(overlap->windows, 3u);
  EXPECT_EQ(overlap->tokens, 4u);
  EXPECT_NEAR(overlap->nll_sum, 8 * kLn2, 1e-6);

  // Without a leading token a window starts with the last token of the one before: A B, B A, A B.
  const auto bare = model.Measure(std::nullopt, text, {.window_tokens = 2});
  ASSERT_TRUE(bare.ok()) << bare.status();
  EXPECT_EQ(bare->windows, 3u);
  EXPECT_NEAR(bare->nll_sum, 7 * kLn2, 1e-6);
}

TEST(Perplexity, ChunksChangeNothing) {
  Tokens text;
  for (int i = 0; i < 40; ++i) text.push_back(i % 3 == 0 ? kB : kA);
  const auto whole = BigramModel().Measure(kLead, text);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->tokens, 40u);
  for (const uint32_t chunk : {1u, 3u, 7u, 1000u}) {
    const auto chunked = BigramModel().Measure(kLead, text, {.chunk_tokens = chunk});
    ASSERT_TRUE(chunked.ok()) << chunked.status();
    EXPECT_EQ(chunked->nll_sum, whole->nll_sum) << chunk;
    EXPECT_EQ(chunked->tokens, whole->tokens) << chunk;
  }
}

TEST(Perplexity, ProgressComesAfterEachStepAndCanEndIt) {
  BigramModel model;
  const Tokens text(40, kA);
  std::vector<uint64_t> counted;
  const auto note = [&](uint64_t done, uint64_t total) {
    EXPECT_EQ(total, 40u);
    counted.push_back(done);
    return true;
  };
  ASSERT_TRUE(model.Measure(kLead, text, {.window_tokens = 21, .chunk_tokens = 8, .progress = note}).ok());
  EXPECT_THAT(counted, ::testing::ElementsAre(8, 16, 20, 28, 36, 40));
  EXPECT_EQ(model.steps(), 6u);
  const auto ended =
      model.Measure(kLead, text, {.chunk_tokens = 8, .progress = [](uint64_t, uint64_t) { return false; }});
  EXPECT_TRUE(absl::IsCancelled(ended.status())) << ended.status();
  EXPECT_EQ(model.steps(), 7u);
}

TEST(Perplexity, RefusesWhatDoesNotFit) {
  BigramModel model(/*context_tokens_max=*/64);
  const auto message = [&](std::optional<TokenId> leading, const Tokens& text, const PerplexityOptions& options) {
    const absl::Status status = model.Measure(leading, text, options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(message(kLead, {}, {}), HasSubstr("a text of 0 tokens has nothing to predict"));
  EXPECT_THAT(message(std::nullopt, {kA}, {}), HasSubstr("a text of 1 tokens"));
  EXPECT_THAT(message(kLead, {kA, kB}, {.window_tokens = 65}), HasSubstr("at most the context of 64"));
  EXPECT_THAT(message(kLead, {kA, kB}, {.window_tokens = 1}), HasSubstr("at least 2"));
  EXPECT_THAT(message(kLead, {kA, kB}, {.window_tokens = 8, .stride_tokens = 8}), HasSubstr("at most 7"));

  BigramModel small(/*context_tokens_max=*/64, /*frames=*/2);  // 32 tokens.
  const absl::Status status = small.Measure(kLead, Tokens(60, kA)).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

/// Log probabilities made here, in double, from the whole logits of the real small model.
TEST(Perplexity, AgreesWithTheLogitsOfARealModel) {
  auto runtime = runtime::Start({.model_path = KVIST_SOURCE_DIR "/models/default-f16.gguf",
                                 .threads = 2,
                                 .kv_memory_bytes = 64u << 20,
                                 .reuse = false});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  step::Executor& executor = *(*runtime)->executor;
  kv::KvMemory& memory = *(*runtime)->memory;
  const Tokenizer& tokenizer = *(*runtime)->tokenizer;
  const TokenId bos = tokenizer.bos().value();
  const Tokens text =
      tokenizer.Encode("Once upon a time there was a small dog who lived near the river. One day he found a red ball.",
                       {.add_special = false});

  Tokens tokens{bos};
  tokens.insert(tokens.end(), text.begin(), text.end());
  const auto rows = static_cast<uint32_t>(text.size());
  const RequestId id{1};
  memory.Begin(id, 0, {});
  ASSERT_TRUE(memory.Reserve(id, rows));
  step::StepPlan plan;
  plan.slices.push_back({.request = id,
                         .tokens_count = rows,
                         .segments_count = 1,
                         .tail = memory.SpanOf(id),
                         .commit_count = rows,
                         .logits_rows = rows});
  plan.segments.push_back({memory.SpanOf(id), 0, rows});
  for (uint32_t t = 0; t < rows; ++t) plan.tokens.push_back({tokens[t]});
  ASSERT_TRUE(executor.Submit(std::move(plan)).ok());
  std::optional<step::StepResult> result;
  while (!result) result = executor.Poll().value();
  memory.End(id);
  const uint32_t vocab = executor.Limits().vocab_size;
  double nll = 0;
  for (uint32_t t = 0; t < rows; ++t) {
    const float* row = result->logits.data() + size_t{t} * vocab;
    double sum = 0;
    for (uint32_t v = 0; v < vocab; ++v) sum += std::exp(double{row[v]});
    nll += std::log(sum) - double{row[tokens[t + 1].value]};
  }

  const auto measured = MeasurePerplexity(executor, memory, bos, text, {.chunk_tokens = 5});
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->tokens, rows);
  EXPECT_NEAR(measured->MeanNll(), nll / rows, 1e-5);
  EXPECT_LT(measured->Perplexity(), vocab) << "worse than knowing nothing";
}

}  // namespace
}  // namespace kvist::lab
