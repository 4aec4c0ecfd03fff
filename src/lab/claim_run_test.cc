#include "lab/claim_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lab/claim_html.h"
#include "lab/claim_record.h"
#include "platform/temp_folder.h"

namespace kvist::lab {
namespace {

using ::testing::HasSubstr;

class ClaimFolder : public ::testing::Test {
 protected:
  ClaimFolder() { std::filesystem::create_directory(folder()); }

  std::string folder() const { return temp_.path() + "/P0"; }
  absl::StatusOr<ClaimFile> Read(const std::string& text) const {
    std::ofstream(folder() + "/claim.toml") << text;
    return ReadClaimFile(folder());
  }
  std::vector<ClaimResult> Run(const std::string& text, ClaimRunOptions options = {}) const {
    const auto file = Read(text);
    EXPECT_TRUE(file.ok()) << file.status();
    const auto results = RunClaims(*file, options);
    EXPECT_TRUE(results.ok()) << results.status();
    return *results;
  }

  TempFolder temp_ = *TempFolder::Create(std::filesystem::temp_directory_path().string());
};

constexpr char kFaster[] = R"(
title = "Faster"
seed = 7
[[run]]
name = "old"
program = ["sh", "-c", "echo for people; echo '{\"ms\": 30, \"seed\": ${seed}}'"]
[[run]]
name = "new"
program = ["sh", "-c", "echo '{\"ms\": 10, \"claim\": \"${claim}\"}'"]
[[claim]]
name = "faster"
text = "twice as fast"
measured = "[run=old].ms / [run=new].ms"
unit = "x"
accept = ">= 2"
[[claim]]
name = "cheap"
text = "at most 5 ms"
runs = ["new"]
measured = "[].ms"
unit = "ms"
accept = "<= 5"
[[claim]]
name = "seeded"
text = "runs get the seed"
runs = ["old"]
measured = "[].seed"
unit = ""
accept = ">= 7"
[[claim]]
name = "elsewhere"
text = "on another machine"
missing = "that machine"
supply = "buying one"
)";

TEST_F(ClaimFolder, EachClaimIsMeasuredByTheRowsOfItsRuns) {
  const std::vector<ClaimResult> results = Run(kFaster);
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[0].state, ClaimState::kMet) << results[0].why;
  EXPECT_EQ(results[0].measured, 3);
  EXPECT_EQ(results[1].state, ClaimState::kShort);
  EXPECT_EQ(results[1].measured, 10);
  EXPECT_EQ(results[2].state, ClaimState::kMet);
  EXPECT_EQ(results[3].state, ClaimState::kNotComparable);
  EXPECT_THAT(results[3].why, HasSubstr("that machine"));
}

TEST_F(ClaimFolder, WhatCannotRunIsNotRunAndSaysWhy) {
  const std::vector<ClaimResult> results = Run(R"(
title = "Faults"
run = [{name = "input", program = ["cat", "${nowhere}/trace"]}, {name = "fails", program = ["sh", "-c", "exit 3"]},
       {name = "broken", program = ["sh", "-c", "echo '{\"ms\": '"]}, {name = "absent", program = ["no-such-program"]},
       {name = "long", program = ["true"], seconds = 100}, {name = "silent", program = ["true"]}]
claim = [{name = "a", text = "a", runs = ["input"], measured = "[].x", accept = ">= 1"},
         {name = "b", text = "b", runs = ["fails"], measured = "[].x", accept = ">= 1"},
         {name = "c", text = "c", runs = ["broken"], measured = "[].x", accept = ">= 1"},
         {name = "d", text = "d", runs = ["absent"], measured = "[].x", accept = ">= 1"},
         {name = "e", text = "e", runs = ["long"], measured = "[].x", accept = ">= 1"},
         {name = "f", text = "f", runs = ["silent"], measured = "[].x", accept = ">= 1"}]
)",
                                               {.seconds_max = 20});
  const char* reasons[] = {"${nowhere}", "exit code 3", "no JSON", "no-such-program", "100 s", "no row"};
  ASSERT_EQ(results.size(), std::size(reasons));
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].state, ClaimState::kNotRun) << i;
    EXPECT_THAT(results[i].why, HasSubstr(reasons[i])) << i;
  }
}

TEST_F(ClaimFolder, AFaultInTheFileNamesItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"title = 3", "title"},
      {"titel = 'x'", "titel"},
      {"title = 'x'", "claim"},
      {"title = 'x'\n[[run]]\nname = 'Not Plain'\nprogram = ['a']", "run[0].name"},
      {"title = 'x'\n[[run]]\nname = 'a'\nprogram = ['a']\ntest = 't'\nfilter = 'f'", "one of"},
      {"title = 'x'\n[[run]]\nname = 'a'\ntest = 't'", "filter"},
      {"title = 'x'\n[[claim]]\nname = 'a'\ntext = 't'", "claim[0].measured"},
      {"title = 'x'\n[[claim]]\nname = 'a'\ntext = 't'\nmissing = 'm'", "claim[0].supply"},
      {"title = 'x'\n[[claim]]\nname = 'a'\ntext = 't'\nmeasured = '1 +'\naccept = '>= 1'", "column 4"},
      {"title = 'x'\n[[claim]]\nname = 'a'\ntext = 't'\nmeasured = '1'\naccept = '== 1'", "claim[0].accept"},
      {"title = 'x'\n[[claim]]\nname = 'a'\ntext = 't'\nmeasured = '1'\naccept = '>= 1'\nruns = ['b']", "'b'"},
      {"title = 'x'\n[[claim]]\nname = 'a'\ntext = 't'\nmeasured = '1'\naccept = '>= 1'", "no run"},
      {"title = 'x'\n[[run]]\nname = 'a'\nprogram = ['a']\n[[run]]\nname = 'a'\nprogram = ['a']", "twice"},
      {"title = 'x'\n[[run]\n", "claim.toml:2"},
  };
  for (const auto& [text, part] : cases) {
    const auto file = Read(text);
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(part)) << text;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr("claim.toml")) << text;
  }
}

TEST_F(ClaimFolder, TheRecordKeepsWhatWasNotRunAndFindsWhatBroke) {
  const auto file = Read(kFaster);
  ASSERT_TRUE(file.ok());
  std::vector<ClaimRecord> first;
  for (const ClaimResult& result : Run(kFaster)) first.push_back({.result = result, .commit = "abc", .seed = 7});
  first.push_back({.result = {.id = "P0", .name = "gone", .state = ClaimState::kMet}});
  const std::string path = temp_.path() + "/results.jsonl";
  ASSERT_TRUE(WriteClaimRecords(path, MergeClaimRecords({*file}, {}, first)).ok());
  const auto read = ReadClaimRecords(path);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 4u);  // What no file names is gone.
  for (size_t i = 0; i < read->size(); ++i) EXPECT_EQ(ClaimJson((*read)[i]), ClaimJson(first[i]));

  ClaimResult slower = first[0].result, not_run = first[0].result;
  slower.state = ClaimState::kShort;
  not_run.state = ClaimState::kNotRun;
  EXPECT_EQ(BrokenClaims(*read, {slower}).size(), 1u);
  EXPECT_TRUE(BrokenClaims(*read, {not_run, first[1].result}).empty());
  EXPECT_EQ(MergeClaimRecords({*file}, *read, {{.result = not_run}})[0].commit, "abc");
  EXPECT_EQ(MergeClaimRecords({*file}, *read, {{.result = slower}})[0].result.state, ClaimState::kShort);

  std::ofstream(path, std::ios::app) << "{\"id\": 3}\n";
  EXPECT_THAT(std::string(ReadClaimRecords(path).status().message()), HasSubstr("results.jsonl:5"));
}

TEST_F(ClaimFolder, ThePageShowsEachClaimWithItsBoundAndEscapesText) {
  std::string text = kFaster;
  text.replace(text.find("twice"), 5, "<b>&");
  const auto file = Read(text);
  std::vector<ClaimRecord> records;
  for (const ClaimResult& result : Run(text)) records.push_back({.result = result, .commit = "abc"});
  const std::string page = ClaimsHtml({*file}, records);
  EXPECT_THAT(page, HasSubstr("2 met, 1 short, 1 not comparable"));
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;&amp; as fast"));
  EXPECT_THAT(page, HasSubstr("measured 3 x, wanted &gt;= 2"));
  EXPECT_THAT(page, HasSubstr("buying one"));
}

}  // namespace
}  // namespace kvist::lab
