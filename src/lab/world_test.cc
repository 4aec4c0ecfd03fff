// The simulated world: without defects every promise holds, the same scenario gives the same run, and each defect that
// is put in is found.

#include "lab/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "base/check.h"
#include "lab/sim_run.h"
#include "platform/child.h"

namespace kvist::lab {
namespace {

std::string Story(const SimScenario& scenario, const WorldResult& result) {
  std::string story = result.violation.checker + ": " + result.violation.message + "\n";
  for (const std::string& line : result.last_lines) story += line + "\n";
  return story + EncodeScenario(scenario);
}

TEST(World, EveryPromiseHoldsUnderRandomSeeds) {
  ClientTotals clients;
  WorkerTotals workers;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const SimScenario scenario = DrawScenario(seed, 6);
    const auto result = RunApart(scenario, {});
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_TRUE(result->ok()) << Story(scenario, *result);
    clients.answered += result->clients.answered;
    clients.cancelled += result->clients.cancelled;
    clients.refused += result->clients.refused;
    clients.failed += result->clients.failed;
    workers.cached_tokens += result->workers.cached_tokens;
    workers.preemptions += result->workers.preemptions;
    workers.restored_blocks += result->workers.restored_blocks;
  }
  // What was simulated is worth looking at.
  EXPECT_GT(clients.answered, 1000u);
  EXPECT_GT(clients.cancelled, 10u);
  EXPECT_GT(clients.refused, 10u);
  EXPECT_GT(clients.failed, 0u);
  EXPECT_GT(workers.cached_tokens, 10'000u);
  EXPECT_GT(workers.preemptions, 10u);
  EXPECT_GT(workers.restored_blocks, 100u);
}

TEST(World, EveryPromiseHoldsInTheScenariosOfTheRepository) {
  for (const auto& entry : std::filesystem::directory_iterator(KVIST_SOURCE_DIR "/tests/scenarios")) {
    if (entry.path().extension() != ".toml") continue;
    const auto scenario = ReadScenario(entry.path().string());
    ASSERT_TRUE(scenario.ok()) << scenario.status();
    const auto result = RunApart(*scenario, {});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->ok()) << entry.path() << "\n" << Story(*scenario, *result);
    EXPECT_GT(result->clients.answered, 20u) << entry.path();
  }
}

TEST(World, TheSameScenarioGivesTheSameRunInEveryProcess) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const SimScenario scenario = DrawScenario(seed, 3);
    const auto apart = RunApart(scenario, {});
    ASSERT_TRUE(apart.ok());
    const WorldResult first = RunWorld(scenario), second = RunWorld(scenario);
    EXPECT_EQ(first.digest, second.digest) << seed;
    EXPECT_EQ(first.digest, apart->digest) << seed;
    EXPECT_EQ(first.last_lines, apart->last_lines) << seed;
  }
  EXPECT_NE(RunWorld(DrawScenario(1, 3)).digest, RunWorld(DrawScenario(2, 3)).digest);
}

/// Of each defect, by how many random seeds it is found.
TEST(World, EachDefectIsFound) {
  constexpr uint64_t kSeedsMax = 60;
  for (const DefectEntry& entry : Defects()) {
    uint64_t seed = 1;
    std::string checker;
    for (; seed <= kSeedsMax && checker.empty(); ++seed) {
      const auto result = RunApart(DrawScenario(seed, 10), {.defect = entry.defect});
      ASSERT_TRUE(result.ok()) << result.status();
      checker = result->violation.checker;
    }
    EXPECT_FALSE(checker.empty()) << entry.name << " is not found in " << kSeedsMax << " seeds";
    RecordProperty(std::string(entry.name), std::to_string(seed - 1) + " " + checker);
  }
}

TEST(World, AFailureBecomesShort) {
  const SimRunOptions options{.defect = Defect::kDoubledToken};
  SimScenario scenario = DrawScenario(3, 10);
  auto result = RunApart(scenario, options);
  ASSERT_TRUE(result.ok() && !result->ok());
  const auto shrunk = Shrink(scenario, *result, options);
  ASSERT_TRUE(shrunk.ok()) << shrunk.status();
  EXPECT_EQ(shrunk->result.violation.checker, result->violation.checker);
  EXPECT_LE(shrunk->scenario.clients, 2u);
  EXPECT_TRUE(shrunk->scenario.faults.empty());
  EXPECT_LT(shrunk->scenario.seconds, scenario.seconds / 2);
  // It does so when it is read from its file.
  const auto again = RunApart(*ParseScenario(EncodeScenario(shrunk->scenario), "x.toml"), options);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->violation.message, shrunk->result.violation.message);
  EXPECT_EQ(again->digest, shrunk->result.digest);
}

TEST(World, AnAbortIsAFinding) {
  const auto aborted = RunInChild(
      [] {
        KVIST_CHECK(Defects().empty());
        return std::string();
      },
      10);
  ASSERT_TRUE(aborted.ok());
  EXPECT_FALSE(aborted->returned);
  EXPECT_EQ(aborted->signal, SIGABRT);
  EXPECT_THAT(aborted->errors, testing::HasSubstr("check failed"));
  const auto endless = RunInChild(
      [] {
        volatile bool ended = false;
        while (!ended) {
        }
        return std::string();
      },
      1);
  ASSERT_TRUE(endless.ok());
  EXPECT_EQ(endless->signal, SIGALRM);
  const auto large = RunInChild([] { return std::string(1 << 20, 'x'); }, 10);
  ASSERT_TRUE(large.ok());
  EXPECT_TRUE(large->returned);
  EXPECT_EQ(large->result.size(), 1u << 20);
}

}  // namespace
}  // namespace kvist::lab
