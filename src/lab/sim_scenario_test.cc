// Scenarios: what is drawn or written reads back the same, and bad files are refused with the place.

#include "lab/sim_scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "platform/text_file.h"

namespace kvist::lab {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(KVIST_SOURCE_DIR) / "tests/scenarios";

std::vector<std::filesystem::path> FilesIn(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

TEST(SimScenario, WhatIsWrittenReadsBackTheSame) {
  size_t faults = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const SimScenario scenario = DrawScenario(seed, 7.5);
    const auto again = ParseScenario(EncodeScenario(scenario), "x.toml");
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, scenario) << EncodeScenario(scenario);
    faults += scenario.faults.size();
  }
  EXPECT_GT(faults, 300u);
}

TEST(SimScenario, FilesOfTheRepositoryReadBackTheSame) {
  const auto files = FilesIn(kFolder);
  EXPECT_GE(files.size(), 7u);
  for (const auto& file : files) {
    const auto scenario = ReadScenario(file.string());
    ASSERT_TRUE(scenario.ok()) << scenario.status();
    EXPECT_EQ(*ParseScenario(EncodeScenario(*scenario), "x.toml"), *scenario) << file;
  }
}

/// The first line of a bad file is a comment: what the error must name.
TEST(SimScenario, BadFilesAreRefusedWithThePlace) {
  const auto files = FilesIn(kFolder / "bad");
  EXPECT_GE(files.size(), 13u);
  for (const auto& file : files) {
    const std::string text = *ReadTextFile(file.string(), 1 << 20);
    const std::string place = text.substr(2, text.find('\n') - 2);
    const auto scenario = ReadScenario(file.string());
    ASSERT_TRUE(absl::IsInvalidArgument(scenario.status())) << file;
    EXPECT_THAT(std::string(scenario.status().message()), testing::HasSubstr(place)) << file;
    EXPECT_THAT(std::string(scenario.status().message()), testing::HasSubstr(file.string())) << file;
  }
}

}  // namespace
}  // namespace kvist::lab
