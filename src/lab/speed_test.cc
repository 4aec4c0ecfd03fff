#include "lab/speed.h"

#include <gtest/gtest.h>

#include "lab/fake_executor_testutil.h"
#include "lab/roofline.h"
#include "lab/work.h"

namespace kvist::lab {
namespace {

constexpr step::ExecutorLimits kLimits{.tokens_per_step_max = 32,
                                       .slices_per_step_max = 8,
                                       .block_tokens = kv::kBlockTokens,
                                       .vocab_size = 100,
                                       .context_tokens_max = 256};

std::string Shape(const step::StepPlan& plan) {
  std::string shape;
  for (const step::Slice& slice : plan.slices) {
    const step::Segment& view = plan.segments[slice.segments_begin];
    shape += std::to_string(slice.position) + "+" + std::to_string(slice.tokens_count) + "/" +
             std::to_string(view.token_begin) + ".." + std::to_string(view.token_begin + view.tokens_count) +
             (slice.sampling ? "s " : " ");
  }
  return shape;
}

TEST(Speed, RoundsTakeTurnsAndContextsAreFilledOnce) {
  std::vector<std::string> steps;
  FakeExecutor executor(kLimits, [&](const step::StepPlan& plan, step::StepResult&) { steps.push_back(Shape(plan)); });
  kv::KvMemory memory({.frames_count = 64, .reuse = false});
  const RealClock clock;
  SpeedOptions options{.prompts = {40}, .decode_tokens = 1, .batches = {1, 2}, .depths = {48}, .repetitions = 1};
  EXPECT_EQ(TokensNeeded(options), 88u);
  auto speeds = MeasureSpeed(executor, memory, clock, options);
  ASSERT_TRUE(speeds.ok()) << speeds.status();
  const std::vector<std::string> fill{"0+32/0..32 ", "32+16/32..48 ", "0+32/0..32 ", "32+16/32..48 "};
  const std::vector<std::string> round{"48+32/0..80 ", "80+8/0..88s ", "48+1/0..49s ", "48+1/0..49s 48+1/0..49s "};
  std::vector<std::string> expected = fill;
  for (int i = 0; i < 2; ++i) expected.insert(expected.end(), round.begin(), round.end());
  EXPECT_EQ(steps, expected);
  ASSERT_EQ(speeds->size(), 3u);
  EXPECT_EQ((*speeds)[0].name, "pp40@d48");
  EXPECT_EQ((*speeds)[1].name, "tg1@d48");
  EXPECT_EQ((*speeds)[2].name, "tg1@b2@d48");
  for (const Speed& speed : *speeds) EXPECT_EQ(speed.seconds.size(), 1u);
  EXPECT_EQ(memory.AvailableFrames(), 64u);
}

TEST(Speed, SharedContextIsFilledOnceAndInEveryView) {
  std::vector<std::string> steps;
  std::vector<uint32_t> shared_spans;
  FakeExecutor executor(kLimits, [&](const step::StepPlan& plan, step::StepResult&) {
    steps.push_back(Shape(plan));
    for (const step::Slice& slice : plan.slices) {
      if (slice.segments_count == 1) continue;
      ASSERT_EQ(slice.segments_count, 2u);
      const step::Segment &shared = plan.segments[slice.segments_begin], &own = plan.segments[slice.segments_begin + 1];
      shared_spans.push_back(shared.span.value);
      EXPECT_EQ(shared.tokens_count, 40u);
      EXPECT_EQ(own.span, slice.tail);
      EXPECT_EQ(own.token_begin + own.tokens_count, slice.tail_begin + slice.tokens_count);
    }
  });
  kv::KvMemory memory({.frames_count = 64, .reuse = false});
  const RealClock clock;
  SpeedOptions options{
      .prompts = {}, .decode_tokens = 1, .batches = {2}, .depths = {16}, .shared_depth = 40, .repetitions = 1};
  EXPECT_EQ(TokensNeeded(options), 57u);
  auto speeds = MeasureSpeed(executor, memory, clock, options);
  ASSERT_TRUE(speeds.ok()) << speeds.status();
  EXPECT_EQ((*speeds)[0].name, "tg1@b2@s40@d16");
  const std::vector<std::string> expected{"0+32/0..32 ",
                                          "32+8/32..40 ",
                                          "40+16/0..16 ",
                                          "40+16/0..16 ",
                                          "56+1/0..40s 56+1/0..40s ",
                                          "56+1/0..40s 56+1/0..40s "};
  EXPECT_EQ(steps, expected);
  ASSERT_EQ(shared_spans.size(), 4u);
  for (uint32_t span : shared_spans) EXPECT_EQ(span, shared_spans[0]);
  EXPECT_EQ(memory.AvailableFrames(), 64u);
}

TEST(Speed, RefusesWhatDoesNotFitAndStopsWhenAsked) {
  FakeExecutor executor(kLimits, [](const step::StepPlan&, step::StepResult&) {});
  kv::KvMemory memory({.frames_count = 4, .reuse = false});
  const RealClock clock;
  const auto code = [&](const SpeedOptions& options) {
    return MeasureSpeed(executor, memory, clock, options).status().code();
  };
  EXPECT_EQ(code({.prompts = {300}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.prompts = {65}, .decode_tokens = 1}), absl::StatusCode::kInvalidArgument);  // Four blocks of 16.
  EXPECT_EQ(code({.prompts = {}, .decode_tokens = 1, .batches = {9}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.prompts = {16}, .decode_tokens = 1, .progress = [](std::string_view, uint32_t) { return false; }}),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(memory.AvailableFrames(), 4u);
}

TEST(Speed, Quantiles) {
  const Speed speed{.tokens = 10, .batch = 2, .seconds = {1, 2, 3, 4, 5}};
  EXPECT_DOUBLE_EQ(speed.SecondsAt(0.5), 3);
  EXPECT_DOUBLE_EQ(speed.SecondsAt(0.9), 4.6);
  EXPECT_DOUBLE_EQ(speed.TokensPerS(0.5), 20.0 / 3);
  EXPECT_DOUBLE_EQ(speed.Spread(), 4.0 / 3);
}

TEST(Work, CountsWeightsHeadAndAttention) {
  auto model = model::LoadModel(KVIST_SOURCE_DIR "/models/default-q8_0.gguf");
  ASSERT_TRUE(model.ok()) << model.status();
  const model::ModelSpec& spec = (*model)->spec;
  const Work one = WorkOfStep(**model, KvType::kF16, 1, 1, 0, true),
             two = WorkOfStep(**model, KvType::kF16, 2, 1, 0, true);
  const Work later = WorkOfStep(**model, KvType::kF16, 1, 1, 100, true),
             unsampled = WorkOfStep(**model, KvType::kF16, 1, 1, 0, false);
  const double kv_token = 2.0 * spec.layers * spec.kv_heads * (spec.key_width + spec.value_width);
  EXPECT_DOUBLE_EQ(later.bytes - one.bytes, 100 * kv_token);
  EXPECT_DOUBLE_EQ(two.bytes - one.bytes, kv_token);  // Weights are read once.
  const double q8_bytes =
      WorkOfStep(**model, KvType::kQ8, 1, 1, 100, true).bytes - WorkOfStep(**model, KvType::kQ8, 1, 1, 0, true).bytes;
  const uint32_t q8_scales = (spec.key_width + 31) / 32 + 1;  // Of one token and head: keys', and one for values.
  EXPECT_DOUBLE_EQ(q8_bytes, 100.0 * spec.layers * spec.kv_heads * (spec.key_width + spec.value_width + q8_scales * 4));
  const Work shared = WorkOfStep(**model, KvType::kF16, 5, 1, 100, true, /*shared_depth=*/80);
  const Work apart = WorkOfStep(**model, KvType::kF16, 5, 1, 100, true);
  EXPECT_DOUBLE_EQ(apart.bytes - shared.bytes, 4 * 80 * kv_token);
  EXPECT_DOUBLE_EQ(apart.multiply_adds, shared.multiply_adds);
  EXPECT_DOUBLE_EQ(two.multiply_adds, 2 * one.multiply_adds);
  EXPECT_DOUBLE_EQ(one.multiply_adds - unsampled.multiply_adds, double{1} * spec.vocab_size * spec.width);
  EXPECT_DOUBLE_EQ(later.multiply_adds - one.multiply_adds,
                   100.0 * spec.layers * spec.heads * (spec.key_width + spec.value_width));
}

TEST(Work, ExpertsAreThoseThatSomebodyIsExpectedToNeed) {
  const model::ExpertSpec spec{.count = 32, .used = 4};
  EXPECT_DOUBLE_EQ(ExpertsNeeded(spec, 1), 4);
  EXPECT_DOUBLE_EQ(ExpertsNeeded(spec, 2), 4 + 28 * 4 / 32.0);
  EXPECT_NEAR(ExpertsNeeded(spec, 512), 32, 1e-9);
  EXPECT_DOUBLE_EQ(ExpertsNeeded({.count = 3, .used = 3}, 1), 3);

  auto model = model::LoadModel(KVIST_SOURCE_DIR "/tests/golden/qwen3moe.gguf");
  ASSERT_TRUE(model.ok()) << model.status();
  constexpr double kExpert = 3.0 * 32 * 64;  // Elements, F16; two of eight are used, in two layers.
  const Work one = WorkOfStep(**model, KvType::kF16, 1, 1, 0, false),
             many = WorkOfStep(**model, KvType::kF16, 1, 512, 0, false);
  const double kv_token = 2.0 * 2 * 2 * (16 + 16);
  EXPECT_NEAR(many.bytes - one.bytes, 2 * (8 - 2) * kExpert * 2 + 511 * kv_token, 1e-3);
  const Work next = WorkOfStep(**model, KvType::kF16, 1, 1, 1, false),
             two = WorkOfStep(**model, KvType::kF16, 1, 2, 0, false);
  const double dense = 2 * (64.0 * (64 + 2 * 32) + 64 * 64 + 64 * 8);
  const double pair = 2.0 * 4 * (16 + 16);  // A token's attention to one key, both layers.
  EXPECT_DOUBLE_EQ(next.multiply_adds - one.multiply_adds, pair);
  EXPECT_DOUBLE_EQ(one.multiply_adds, dense + 2 * 2 * kExpert + pair);
  EXPECT_DOUBLE_EQ(two.multiply_adds, 2 * (dense + 2 * 2 * kExpert) + 3 * pair);
}

TEST(Work, RowsOfAFusedTensorAreCountedOnce) {
  auto model = model::LoadModel(KVIST_SOURCE_DIR "/tests/golden/phi3_long.gguf");
  ASSERT_TRUE(model.ok()) << model.status();
  double bytes = 0;
  for (const GgufTensor& tensor : (*model)->file->tensors()) {
    if (tensor.dims.size() == 2) bytes += static_cast<double>(tensor.bytes.size());
  }
  EXPECT_DOUBLE_EQ(WorkOfStep(**model, KvType::kF16, 1, 1, 0, true).bytes, bytes + 2.0 * 2 * (16 + 16));
}

TEST(Roofline, EveryPointIsDrawnAndTextIsEscaped) {
  const std::string svg = RooflineSvg({.title = "a < b & \"c\"",
                                       .bytes_per_s = 1e10,
                                       .roofs = {{"avx512 int8", 1e12}},
                                       .points = {{"tg1", 1, 5e9}, {"pp512", 300, 2e11}, {"none", 0, 0}}});
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  EXPECT_NE(svg.find("a &lt; b &amp; &quot;c&quot;"), std::string::npos);
  EXPECT_NE(svg.find(">tg1</text>"), std::string::npos);
  EXPECT_NE(svg.find(">pp512</text>"), std::string::npos);
  EXPECT_EQ(svg.find("none"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_NE(RooflineSvg({}).find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace kvist::lab
