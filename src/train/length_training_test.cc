#include "train/length_training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/prng.h"
#include "base/status.h"
#include "sched/length_predictor.h"

namespace kvist::train {
namespace {

using ::testing::HasSubstr;

TEST(ReadLengthLog, ReadsLinesListsAndConversations) {
  const auto lines = ReadLengthLog("{\"prompt\":\"a\",\"output_tokens\":3}\n\n{\"input\":\"b\",\"output_length\":7}\n");
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_EQ(lines->size(), 2u);
  EXPECT_EQ((*lines)[1].prompt, "b");
  EXPECT_EQ((*lines)[1].output_tokens, 7u);
  const auto talks = ReadLengthLog(R"([{"id":"x","conversations":[{"from":"gpt","value":"hm"},
    {"from":"human","value":"q1"},{"from":"gpt","value":"12345678"},{"from":"human","value":"q2"}]}])");
  ASSERT_TRUE(talks.ok()) << talks.status();
  ASSERT_EQ(talks->size(), 1u);  // The last question has no answer, the first answer no question.
  EXPECT_EQ((*talks)[0].prompt, "q1");
  EXPECT_EQ((*talks)[0].output_tokens, 3u);
  EXPECT_TRUE(ReadLengthLog("")->empty());
}

TEST(ReadLengthLog, NamesThePlaceOfAFault) {
  const auto message = [](std::string_view text) { return std::string(ReadLengthLog(text).status().message()); };
  EXPECT_THAT(message("{\"prompt\":\"a\",\"output_tokens\":3}\n{\"prompt\"}"), HasSubstr("line 2 is not JSON"));
  EXPECT_THAT(message("{\"prompt\":\"a\"}"), HasSubstr("line 1 has neither"));
  EXPECT_THAT(message("{\"prompt\":\"a\",\"output_tokens\":-1}"), HasSubstr("line 1: the output's tokens"));
  EXPECT_THAT(message("[{\"prompt\":\"a\",\"output_tokens\":1}, 5]"), HasSubstr("entry 1 is not an object"));
  EXPECT_THAT(message("[1"), HasSubstr("not JSON"));
  EXPECT_THAT(message("{\"conversations\":1}"), HasSubstr("not a list"));
}

/// Stories are long, facts are short, and the rest of the text says nothing.
std::vector<LengthExample> MadeUp(size_t count, uint64_t seed) {
  Prng prng(seed);
  std::vector<LengthExample> examples;
  for (size_t i = 0; i < count; ++i) {
    const bool story = prng.Below(2) == 0;
    std::string text = story ? "Please write a detailed story about number " : "Which city is the capital of country ";
    for (uint64_t n = prng.Below(20); n > 0; --n) text += Cat(prng.Below(1000), " and ");
    const auto tokens = static_cast<uint32_t>((story ? 400 : 20) + prng.Below(50));
    examples.push_back({text + (story ? "." : "?"), tokens});
  }
  return examples;
}

TEST(TrainLengthModel, LearnsWhatMakesAnswersLong) {
  const auto model = TrainLengthModel(MadeUp(200, 1));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->report.examples, 200u);
  EXPECT_GT(model->report.pairs_right, 0.88);
  EXPECT_LT(model->report.pairs_by_bytes, 0.7);
  EXPECT_GT(model->report.classes_right, 0.95);
  const auto predictor = sched::LengthPredictor::Parse(model->json);
  ASSERT_TRUE(predictor.ok()) << predictor.status();
  EXPECT_GT(predictor->Predict("write a detailed story about 17."), 250u);
  EXPECT_LT(predictor->Predict("which city is the capital of 17?"), 80u);
  EXPECT_EQ(TrainLengthModel(MadeUp(200, 1))->json, model->json) << "training is not deterministic";
}

TEST(TrainLengthModel, ACoinIsReportedAsACoin) {
  std::vector<LengthExample> examples = MadeUp(300, 2);
  Prng prng(3);
  for (LengthExample& example : examples) example.output_tokens = 1 + static_cast<uint32_t>(prng.Below(1000));
  const auto model = TrainLengthModel(examples);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_NEAR(model->report.pairs_right, 0.5, 0.08);
}

TEST(TrainLengthModel, RefusesTooFewExamples) {
  EXPECT_THAT(std::string(TrainLengthModel(MadeUp(5, 1)).status().message()), HasSubstr("has 5 answers"));
}

/// The reach is 0.03 ms a request; a loaded machine and sanitizers get a multiple of it.
TEST(TrainLengthModel, PredictsFast) {
  const auto predictor = sched::LengthPredictor::Parse(TrainLengthModel(MadeUp(200, 1))->json);
  std::string text;
  while (text.size() < 100'000) text += "Explain the list of steps, and write code (briefly)? 12. ";
  uint64_t sum = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 200; ++i) sum += predictor->Predict(text);
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  EXPECT_GT(sum, 0u);
  RecordProperty("ms_per_prediction", std::to_string(time.count() / 200));
  EXPECT_LT(time.count() / 200, 3);
}

}  // namespace
}  // namespace kvist::train
