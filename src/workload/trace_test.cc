#include "workload/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace kvist::workload {
namespace {

using testing::HasSubstr;

std::string Read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Trace, EveryFileOfTheCorpusDoesWhatItsNameSays) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KVIST_SOURCE_DIR "/tests/fuzz/trace")) {
    const std::string name = entry.path().filename().string();
    const auto trace = ParseTrace(Read(entry.path()));
    EXPECT_EQ(trace.ok(), name.starts_with("ok_")) << name << ": " << trace.status();
    ++files;
  }
  EXPECT_GE(files, 20);
}

TEST(Trace, ErrorsNameThePlace) {
  EXPECT_THAT(std::string(ParseTrace("{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": []}\n"
                                     "{\"timestamp\": 0}\n")
                              .status()
                              .message()),
              HasSubstr("line 2: \"input_length\""));
  EXPECT_THAT(
      std::string(ParseTrace(R"({"block_size":64,"requests":[{"t":0,"in":1,"hash_ids":[]}]})").status().message()),
      HasSubstr("requests[0]: \"out\""));
}

TEST(Trace, EqualHashesGiveEqualTokensAndNothingElseDoes) {
  const std::string text =
      "{\"timestamp\": 0, \"input_length\": 1030, \"output_length\": 1, \"hash_ids\": [5, 6, 7]}\n"
      "{\"timestamp\": 1000, \"input_length\": 1030, \"output_length\": 1, \"hash_ids\": [5, 8, 7]}\n";
  const Trace trace = *ParseTrace(text);
  ASSERT_EQ(trace.requests.size(), 2u);
  EXPECT_EQ(trace.requests[0].block_hashes.size(), 2u);  // The third block is not whole.
  EXPECT_DOUBLE_EQ(trace.requests[1].at_s, 1);
  const auto a = PromptTokens(trace.requests[0], 512, 32000, 0), b = PromptTokens(trace.requests[1], 512, 32000, 1);
  ASSERT_EQ(a.size(), 1030u);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 512, b.begin()));
  EXPECT_FALSE(std::equal(a.begin() + 512, a.begin() + 1024, b.begin() + 512));
  EXPECT_FALSE(std::equal(a.begin() + 1024, a.end(), b.begin() + 1024));
}

TEST(Trace, LocalHashesOfTwoSessionsDiffer) {
  const std::string session =
      R"({"block_size":4,"hash_id_scope":"local","requests":[{"t":0,"in":4,"out":1,"hash_ids":[1]}]})";
  EXPECT_NE(ParseTrace(session, 0)->requests[0].block_hashes, ParseTrace(session, 1)->requests[0].block_hashes);
}

TEST(Trace, AzureTimesPassTheEndOfAMonthAndOthersAreNoTimes) {
  const std::string head = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  const absl::StatusOr<Trace> trace =
      ParseTrace(head + "2023-11-30 23:59:59.5,100,10\n2023-12-01 00:00:00.5,100,10\n2024-02-29 00:00:00.5,100,10\n");
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->requests.size(), 3u);
  EXPECT_EQ(trace->requests[0].at_s, 0.0);
  EXPECT_EQ(trace->requests[1].at_s, 1.0);
  EXPECT_EQ(trace->requests[2].at_s, 1.0 + 90 * 86400);
  for (const char* time : {"2023-02-29 00:00:00.0", "2023-13-01 00:00:00.0", "2023-11-16 24:00:00.0",
                           "2023-11-16 18:60:00.0", "2023-11-16 18:00:61.0", "2023-11-16 18:00:-1.0"}) {
    EXPECT_FALSE(ParseTrace(head + time + ",100,10\n").ok()) << time;
  }
}

TEST(Trace, AzureTimesCountFromTheFirstRequest) {
  const Trace trace = *ParseTrace(Read(KVIST_SOURCE_DIR "/tests/fuzz/trace/ok_azure"));
  ASSERT_EQ(trace.requests.size(), 2u);
  EXPECT_DOUBLE_EQ(trace.requests[0].at_s, 0);
  EXPECT_NEAR(trace.requests[1].at_s, 20576.52, 0.01);
  EXPECT_EQ(trace.requests[0].input_tokens, 4808u);
}

}  // namespace
}  // namespace kvist::workload
