#include "sched/length_predictor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/prng.h"
#include "base/status.h"

namespace kvist::sched {
namespace {

using ::testing::HasSubstr;

float FeatureOf(std::string_view text, std::string_view name) {
  const auto place = std::ranges::find(kLengthFeatureNames, name) - kLengthFeatureNames.begin();
  return LengthFeaturesOf(text)[static_cast<size_t>(place)];
}

TEST(LengthFeatures, CountWhatIsThere) {
  constexpr std::string_view kText =
      "Explain this, please:\n```c\nint f() { return 42; }\n```\n- a\n2. b\nWrite a LIST of steps. Why?";
  EXPECT_EQ(FeatureOf(kText, "lines"), 7);
  EXPECT_EQ(FeatureOf(kText, "code_fences"), 2);
  EXPECT_EQ(FeatureOf(kText, "list_items"), 2);
  EXPECT_EQ(FeatureOf(kText, "wants_list"), 2);
  EXPECT_EQ(FeatureOf(kText, "wants_reasons"), 2);
  EXPECT_EQ(FeatureOf(kText, "wants_text"), 1);
  EXPECT_EQ(FeatureOf(kText, "question_marks"), 1);
  EXPECT_EQ(FeatureOf(kText, "ends_as_question"), 1);
  EXPECT_EQ(FeatureOf("Who is it? Say yes.", "ends_as_question"), 0);
  EXPECT_EQ(FeatureOf("Who is it? Say yes.", "asks_a_fact"), 1);
  EXPECT_EQ(FeatureOf("Who is it? Say yes.", "wants_brevity"), 1);
  EXPECT_EQ(FeatureOf("listing", "wants_list"), 0);  // Whole words only.
  EXPECT_FLOAT_EQ(FeatureOf("AB12", "capitals"), 0.5f);
  EXPECT_FLOAT_EQ(FeatureOf("AB12", "digits"), 0.5f);
}

TEST(LengthFeatures, LookAtTheEndOfALongText) {
  std::string text(1'000'000, '?');
  text += std::string(kLengthTextBytes, 'a');
  EXPECT_EQ(FeatureOf(text, "question_marks"), 0);
  EXPECT_GT(FeatureOf(text, "log_bytes"), std::log(1e6f));
}

TEST(LengthFeatures, AnyBytesGiveFiniteNumbers) {
  Prng prng(5);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (uint64_t n = prng.Below(200); n > 0; --n) text.push_back(static_cast<char>(prng.Below(256)));
    for (const float feature : LengthFeaturesOf(text)) ASSERT_TRUE(std::isfinite(feature));
  }
}

std::string Model(std::string_view trees, std::string_view base = "2") {
  std::string names;
  for (const std::string_view name : kLengthFeatureNames) names += Cat(names.empty() ? "" : ",", "\"", name, "\"");
  return Cat(R"({"format":"kvist-length-1","features":[)", names, R"(],"base":)", base, R"(,"trees":)", trees, "}");
}

TEST(LengthPredictor, WalksTheTrees) {
  // Feature 4 counts question marks.
  const auto predictor = LengthPredictor::Parse(Model("[[[4,0.5,1,2],[3],[4,1.5,3,4],[1],[0]],[[0.5]]]"));
  ASSERT_TRUE(predictor.ok()) << predictor.status();
  EXPECT_EQ(predictor->Predict("a"), static_cast<uint32_t>(std::exp(5.5)));
  EXPECT_EQ(predictor->Predict("a?"), static_cast<uint32_t>(std::exp(3.5)));
  EXPECT_EQ(predictor->Predict("a??"), static_cast<uint32_t>(std::exp(2.5)));
  EXPECT_EQ(LengthPredictor::Parse(Model("[]", "-50"))->Predict("a"), 1u);
  EXPECT_GT(LengthPredictor::Parse(Model("[]", "1e9"))->Predict("a"), 1u << 20);
}

TEST(LengthPredictor, SaysWhereAModelIsDamaged) {
  const auto message = [](const std::string& text) {
    return std::string(LengthPredictor::Parse(text).status().message());
  };
  EXPECT_THAT(message("{"), HasSubstr("not JSON"));
  EXPECT_THAT(message("[]"), HasSubstr("\"format\""));
  EXPECT_THAT(message(R"({"format":"kvist-length-1","features":["x"]})"), HasSubstr("train it again"));
  EXPECT_THAT(message(Model("5")), HasSubstr("\"trees\" is not a list"));
  EXPECT_THAT(message(Model("[[]]")), HasSubstr("trees[0]"));
  EXPECT_THAT(message(Model("[[[1]],[[4,0.5,1,2],[3],[1,2]]]")), HasSubstr("trees[1][2]"));
  EXPECT_THAT(message(Model("[[[4,0.5,0,1],[3]]]")), HasSubstr("trees[0][0]"));  // Back to itself: for ever.
  EXPECT_THAT(message(Model("[[[4,0.5,1,9],[3]]]")), HasSubstr("trees[0][0]"));
  EXPECT_THAT(message(Model("[[[19,0.5,1,1],[3]]]")), HasSubstr("trees[0][0]"));
  EXPECT_THAT(message(Model("[[[4,\"a\",1,1],[3]]]")), HasSubstr("not a finite number"));
  EXPECT_THAT(message(Model("[]", "1e99")), HasSubstr("\"base\""));
}

/// Whatever is cut off or changed, the answer is an error or a predictor that works.
TEST(LengthPredictor, SurvivesDamage) {
  const std::string whole = Model("[[[4,0.5,1,2],[3],[4,1.5,3,4],[1],[0]],[[0.5]]]");
  Prng prng(9);
  for (int round = 0; round < 5000; ++round) {
    std::string text = whole;
    for (uint64_t n = 1 + prng.Below(3); n > 0; --n) text[prng.Below(text.size())] = static_cast<char>(prng.Below(128));
    if (prng.Below(3) == 0) text.resize(prng.Below(text.size()));
    const auto predictor = LengthPredictor::Parse(text);
    if (!predictor.ok()) continue;
    EXPECT_GE(predictor->Predict("why?"), 1u);
  }
}

}  // namespace
}  // namespace kvist::sched
