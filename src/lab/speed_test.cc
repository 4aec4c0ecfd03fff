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
  const Work one = WorkOfStep(**model, 1, 1, 0, true), two = WorkOfStep(**model, 2, 1, 0, true);
  const Work later = WorkOfStep(**model, 1, 1, 100, true), unsampled = WorkOfStep(**model, 1, 1, 0, false);
  const double kv_token = 2.0 * spec.layers * spec.kv_heads * (spec.key_width + spec.value_width);
  EXPECT_DOUBLE_EQ(later.bytes - one.bytes, 100 * kv_token);
  EXPECT_DOUBLE_EQ(two.bytes - one.bytes, kv_token);  // Weights are read once.
  EXPECT_DOUBLE_EQ(two.multiply_adds, 2 * one.multiply_adds);
  EXPECT_DOUBLE_EQ(one.multiply_adds - unsampled.multiply_adds, double{1} * spec.vocab_size * spec.width);
  EXPECT_DOUBLE_EQ(later.multiply_adds - one.multiply_adds,
                   100.0 * spec.layers * spec.heads * (spec.key_width + spec.value_width));
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
