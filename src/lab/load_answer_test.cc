#include "lab/load_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"
#include "lab/load_report.h"

namespace kvist::lab {
namespace {

using ::testing::HasSubstr;

TEST(LoadAnswerTest, ReadsAStreamedChat) {
  AnswerReader reader;
  EXPECT_FALSE(
      *reader.TakeEvent("", R"({"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]})"));
  EXPECT_TRUE(*reader.TakeEvent("", R"({"choices":[{"delta":{"reasoning_content":"hm"}}]})"));
  EXPECT_TRUE(*reader.TakeEvent("", R"({"choices":[{"delta":{"content":"a"}}]})"));
  EXPECT_TRUE(*reader.TakeEvent("", R"({"choices":[{"delta":{"tool_calls":[{"index":0}]}}]})"));
  EXPECT_FALSE(reader.done());
  EXPECT_FALSE(*reader.TakeEvent("", R"({"choices":[{"delta":{},"finish_reason":"stop"}]})"));
  EXPECT_TRUE(reader.done());
  EXPECT_FALSE(*reader.TakeEvent(
      "",
      R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":5}}})"));
  EXPECT_FALSE(*reader.TakeEvent("", "[DONE]"));
  EXPECT_EQ(reader.text(), "a");
  EXPECT_EQ(reader.prompt_tokens, 9u);
  EXPECT_EQ(reader.output_tokens, 4u);
  EXPECT_EQ(reader.cached_tokens, 5u);
}

TEST(LoadAnswerTest, ReadsCompletionsAndWhatLlamaCppCounts) {
  AnswerReader reader;
  EXPECT_TRUE(
      *reader.TakeEvent("", R"({"choices":[{"text":"a b","finish_reason":"length"}],"timings":{"cache_n":7}})"));
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(reader.cached_tokens, 7u);
  EXPECT_FALSE(reader.output_tokens.has_value());

  AnswerReader whole;
  ASSERT_TRUE(whole.TakeWhole(R"({"choices":[{"message":{"content":"x"}}],"usage":{"completion_tokens":1}})").ok());
  EXPECT_EQ(whole.text(), "x");
}

TEST(LoadAnswerTest, AnEndWithoutAChoiceIsNoAnswer) {
  AnswerReader reader;
  EXPECT_FALSE(*reader.TakeEvent("", "[DONE]"));
  EXPECT_FALSE(reader.done());
}

TEST(LoadAnswerTest, ErrorsAreToldFromNonsense) {
  AnswerReader reader;
  const auto error = reader.TakeEvent("", R"({"error":{"message":"out of memory","code":500}})").status();
  EXPECT_EQ(error.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(error.message(), "out of memory");
  EXPECT_EQ(reader.TakeEvent("error", "").status().code(), absl::StatusCode::kAborted);
  for (const char* bad : {"", "nonsense", "[1]", "1", "{\"choices\":", "\xff\xfe"}) {
    EXPECT_EQ(reader.TakeEvent("", bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  // Another shape than expected is no text, and no fault.
  for (const char* odd :
       {"{}", R"({"choices":{}})", R"({"choices":[{"delta":[]}]})", R"({"choices":[{"delta":{"content":3}}]})",
        R"({"choices":[],"usage":{"completion_tokens":-5,"prompt_tokens":1e30}})"}) {
    const auto text = reader.TakeEvent("", odd);
    ASSERT_TRUE(text.ok()) << odd;
    EXPECT_FALSE(*text) << odd;
  }
  EXPECT_FALSE(reader.output_tokens.has_value());
  EXPECT_FALSE(reader.TakeWhole(R"({"choices":[]})").ok());
}

TEST(LoadAnswerTest, MessagesOfErrorBodies) {
  EXPECT_EQ(ErrorMessageOf(R"({"error":{"message":"m"}})"), "m");
  EXPECT_EQ(ErrorMessageOf(R"({"error":"plain"})"), "plain");
  EXPECT_EQ(ErrorMessageOf(R"({"detail":"d"})"), "d");
  EXPECT_EQ(ErrorMessageOf("<html>"), "");
  EXPECT_EQ(ErrorMessageOf("this port speaks HTTPS\n"), "this port speaks HTTPS");
}

TEST(LoadReportTest, FaultsAreCountedByKindAndWords) {
  LoadResult result;
  for (int i = 0; i < 3; ++i)
    result.records.push_back({.outcome = LoadOutcome::kRefused, .status = 429, .why = "full"});
  result.records.push_back({.outcome = LoadOutcome::kCutOff, .status = 200, .why = "gone"});
  result.records.push_back({.outcome = LoadOutcome::kInterrupted});
  result.records.push_back({});
  const std::vector<LoadFault> faults = FaultsOf(result);
  ASSERT_EQ(faults.size(), 2u);
  EXPECT_EQ(faults[0].count, 3u);
  EXPECT_EQ(faults[1].why, "gone");
}

TEST(LoadReportTest, FaultsThatDifferByANumberAreOne) {
  LoadReport report;
  for (int i = 0; i < 100; ++i) {
    report.result.records.push_back(
        {.outcome = LoadOutcome::kRefused, .status = 400, .why = Cat(5000 + 900 * i, " tokens, not ", i)});
  }
  report.result.records.push_back({.outcome = LoadOutcome::kRefused, .status = 429, .why = "full"});
  const std::string table = LoadTable(report);
  EXPECT_NE(table.find("\n100 x refused (400), such as: 5000 tokens, not 0\n1 x refused (429): full\n"),
            std::string::npos)
      << table;
}

}  // namespace
}  // namespace kvist::lab
