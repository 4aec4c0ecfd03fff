#include "serve/batch_file.h"

#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/json.hpp>

#include "platform/temp_folder.h"

namespace kvist::serve {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Line(const std::string& id, const std::string& prompt, const std::string& more = "") {
  return R"({"custom_id":")" + id + R"(","method":"POST","url":"/v1/completions","body":{"prompt":")" + prompt + "\"" +
         more + "}}\n";
}

TEST(BatchInputTest, RequestsThatBeginAlikeFollowEachOther) {
  const BatchInput input =
      ParseBatch(Line("1", "b one") + "\n  \r\n" + Line("2", "a") + Line("3", "b two") + Line("4", "a"), -1);
  ASSERT_EQ(input.requests.size(), 4u);
  EXPECT_TRUE(input.faults.empty());
  std::string order;
  for (const BatchRequest& request : input.requests) order += request.custom_id;
  EXPECT_EQ(order, "2413");
  EXPECT_EQ(input.requests[0].line, 4u);  // Lines count empty ones.
  EXPECT_EQ(input.requests[0].body, R"({"prompt":"a"})");
}

TEST(BatchInputTest, PriorityOnlyWhereItIsKnownAndNotGiven) {
  const std::string text = Line("1", "a") + Line("2", "b", R"(,"kvist":{"priority":7})") +
                           Line("3", "c", R"(,"kvist":{"cache_salt":"s"})") +
                           R"({"custom_id":"4","url":"/v1/embeddings","body":{"input":"x"}})";
  const BatchInput input = ParseBatch(text, 255);
  ASSERT_EQ(input.requests.size(), 4u);
  for (const BatchRequest& request : input.requests) {
    const json::object body = json::parse(request.body).as_object();
    if (request.custom_id == "4") {
      EXPECT_FALSE(body.contains("kvist"));
    } else {
      EXPECT_EQ(body.at("kvist").at("priority").as_int64(), request.custom_id == "2" ? 7 : 255);
    }
    if (request.custom_id == "3") {
      EXPECT_EQ(body.at("kvist").at("cache_salt").as_string(), "s");
    }
  }
}

TEST(BatchInputTest, EachFaultNamesItsLineAndStopsNothing) {
  const char* kBad[] = {
      "{",
      "[1]",
      R"({"url":"/v1/x","body":{}})",
      R"({"custom_id":"","url":"/v1/x","body":{}})",
      R"({"custom_id":3,"url":"/v1/x","body":{}})",
      R"({"custom_id":"a","method":"GET","url":"/v1/x","body":{}})",
      R"({"custom_id":"a","body":{}})",
      R"({"custom_id":"a","url":"http://elsewhere/v1/x","body":{}})",
      R"({"custom_id":"a","url":"/v1/x HTTP/1.1\r\nX: y","body":{}})",
      R"({"custom_id":"a","url":"/v1/x"})",
      R"({"custom_id":"a","url":"/v1/x","body":"text"})",
      R"({"custom_id":"a","url":"/v1/x","body":{"stream":true}})",
      "\xff\xfe",
  };
  std::string text;
  for (const char* bad : kBad) text.append(bad).append("\n");
  text += Line("good", "x") + Line("good", "y");
  const BatchInput input = ParseBatch(text, 255);
  ASSERT_EQ(input.requests.size(), 1u);
  ASSERT_EQ(input.faults.size(), std::size(kBad) + 1);
  for (size_t i = 0; i < std::size(kBad); ++i) {
    EXPECT_EQ(input.faults[i].line, i + 1);
    EXPECT_THAT(input.faults[i].message, HasSubstr("line " + std::to_string(i + 1) + ": "));
    EXPECT_THAT(input.faults[i].message, Not(HasSubstr("request body")));
  }
  EXPECT_EQ(input.faults.back().custom_id, "good");
  EXPECT_THAT(input.faults.back().message, HasSubstr("that of line 14"));
}

TEST(BatchOutputTest, LinesHoldTheAnswerAsItCame) {
  const BatchRequest request{.custom_id = "a\"\n", .path = "/v1/x", .body = "{}", .line = 3};
  const std::string text = BatchAnswerLine(request, 200, "", R"({"id":"cmpl-1","x":0.10})");
  EXPECT_THAT(text, HasSubstr(R"("body":{"id":"cmpl-1","x":0.10})"));
  const json::value line = json::parse(text);
  EXPECT_EQ(line.at("custom_id").as_string(), request.custom_id);
  EXPECT_EQ(line.at("response").at("status_code").as_int64(), 200);
  EXPECT_EQ(line.at("response").at("request_id").as_string(), "cmpl-1");
  EXPECT_TRUE(line.at("error").is_null());
  const std::string folded = BatchAnswerLine(request, 200, "r", "{\n \"a\": 1\n}");
  EXPECT_EQ(folded.find('\n'), folded.npos);
  EXPECT_EQ(json::parse(folded).at("response").at("request_id").as_string(), "r");
  EXPECT_EQ(json::parse(BatchAnswerLine(request, 502, "", "<html>\xff\n")).at("response").at("body").as_string(),
            "<html>?\n");
}

class BatchOutputFileTest : public ::testing::Test {
 protected:
  void Write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  std::string Read() {
    std::ostringstream text;
    text << std::ifstream(path_, std::ios::binary).rdbuf();
    return text.str();
  }

  TempFolder folder_ = TempFolder::Create(::testing::TempDir()).value();
  std::string path_ = folder_.path() + "/out.jsonl";
};

TEST_F(BatchOutputFileTest, WhatWasWrittenIsKnownAndATornLineIsNot) {
  const BatchRequest a{.custom_id = "a", .line = 1}, b{.custom_id = "b", .line = 2};
  const std::string fault = BatchErrorLine("b", kBatchInvalidLine, "line 9: it is b again", 9);
  const std::string whole = BatchAnswerLine(a, 200, "", "{}") + "\n" + fault + "\n";
  const std::string torn = BatchAnswerLine(b, 200, "", R"({"text":"x"})");
  for (size_t kept : {size_t{0}, size_t{1}, size_t{20}, torn.size()}) {
    Write(whole + torn.substr(0, kept));
    absl::StatusOr<BatchOutput> output = BatchOutput::Open(path_);
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ(output->torn_bytes(), kept);
    EXPECT_EQ(output->lines(), 2u);
    EXPECT_TRUE(output->Has(a));
    EXPECT_FALSE(output->Has(b));
    EXPECT_TRUE(output->Has(BatchFault{.line = 9}));
    EXPECT_FALSE(output->Has(BatchFault{.line = 8}));
    ASSERT_TRUE(output->Append(torn).ok());
    EXPECT_EQ(Read(), whole + torn + "\n");
  }
}

TEST_F(BatchOutputFileTest, OneRunAtATimeWritesIt) {
  {
    const absl::StatusOr<BatchOutput> first = BatchOutput::Open(path_);
    ASSERT_TRUE(first.ok());
    const absl::Status second = BatchOutput::Open(path_).status();
    EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(second.message().find(path_), std::string::npos) << second;
  }
  EXPECT_TRUE(BatchOutput::Open(path_).ok());
}

TEST_F(BatchOutputFileTest, TornInTheFirstLine) {
  const std::string line = BatchErrorLine("a", "cut_off", "gone", 0);
  for (size_t kept = 1; kept < line.size(); ++kept) {
    Write(line.substr(0, kept));
    absl::StatusOr<BatchOutput> output = BatchOutput::Open(path_);
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ(output->torn_bytes(), kept);
    EXPECT_EQ(Read(), "");
  }
}

TEST_F(BatchOutputFileTest, OtherFilesAreLeftAlone) {
  for (const char* other :
       {"some notes\n", "some notes without end", "{\"a\":1}\n", "{\"custom_id\":\"a\"}\n", "\n\n[]\n"}) {
    Write(other);
    EXPECT_EQ(BatchOutput::Open(path_).status().code(), absl::StatusCode::kFailedPrecondition) << other;
    EXPECT_EQ(Read(), other);
  }
  EXPECT_FALSE(BatchOutput::Open(folder_.path() + "/none/out.jsonl").ok());
  EXPECT_FALSE(BatchOutput::Open(folder_.path()).ok());
}

}  // namespace
}  // namespace kvist::serve
