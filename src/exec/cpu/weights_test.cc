// Whole models that were loaded in different ways: the same bits.

#include "exec/cpu/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "exec/cpu/golden_testutil.h"
#include "platform/temp_folder.h"

namespace kvist::exec {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class WeightsTest : public testing::Test {
 protected:
  struct Outcome {
    std::vector<float> logits;
    LoadReport report;
  };

  LoadOptions Cached() const { return {.cache = {.folder = folder_.path() + "/cache"}, .cache_bytes_min = 0}; }
  LoadOptions Mapped() const {
    LoadOptions options = Cached();
    options.memory_bytes_max = 1000;
    return options;
  }
  std::string CopyOf(const std::string& golden) const {
    const std::string path = folder_.path() + "/" + golden + ".gguf";
    fs::copy_file(GoldenFolder() / (golden + ".gguf"), path);
    return path;
  }
  static Outcome Run(const std::string& path, const LoadOptions& load) {
    TestExecutor executor(path, {.threads = 2, .load = load});
    std::vector<TokenId> tokens;
    for (uint32_t i = 0; i < 9; ++i) tokens.push_back({i * 5 % executor.vocab()});
    Outcome outcome{executor.Logits({{.tokens = tokens}})[0], executor.executor().weights().report()};
    EXPECT_TRUE(executor.executor().weights().WaitForBackground().ok());
    return outcome;
  }

  TempFolder folder_ = *TempFolder::Create(testing::TempDir());
};

TEST_F(WeightsTest, LogitsHaveTheSameBitsHoweverWeightsAreLoaded) {
  for (const char* golden : {"q4_k", "q8_0", "iq4_xs", "bf16", "f32", "phi3", "qwen3moe_q4_0"}) {
    SCOPED_TRACE(golden);
    const std::string path = CopyOf(golden);
    const Outcome plain = Run(path, {});
    EXPECT_EQ(plain.report.source, WeightSource::kModel);
    EXPECT_EQ(plain.report.cache_path, "");
    const Outcome first = Run(path, Cached()), second = Run(path, Cached());
    EXPECT_EQ(first.report.source, WeightSource::kModel);
    EXPECT_EQ(second.report.source, WeightSource::kCache) << second.report.cache_miss;
    const Outcome mapped = Run(path, Mapped());
    EXPECT_EQ(mapped.report.source, WeightSource::kMapped);
    fs::remove(mapped.report.cache_path);
    const Outcome built = Run(path, Mapped());
    EXPECT_EQ(built.report.source, WeightSource::kMapped);
    for (const Outcome& outcome : {first, second, mapped, built}) EXPECT_EQ(outcome.logits, plain.logits);
  }
}

TEST_F(WeightsTest, ADamagedCacheIsPackedAgainAndReplaced) {
  const std::string path = CopyOf("q4_0");
  const Outcome first = Run(path, Cached());
  for (const LoadOptions& options : {Cached(), Mapped()}) {
    {
      std::fstream file(first.report.cache_path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(-100, std::ios::end);
      file.write("wrong", 5);
    }
    const Outcome repaired = Run(path, options);
    EXPECT_EQ(repaired.logits, first.logits);
    EXPECT_THAT(repaired.report.cache_miss, HasSubstr("checksum"));
    EXPECT_EQ(Run(path, Cached()).report.source, WeightSource::kCache);
  }
}

// Of the same size and with its time set back: what copying tools and editors in place can do.
TEST_F(WeightsTest, AModelThatChangedIsPackedAgain) {
  const std::string path = CopyOf("q8_0");
  const fs::file_time_type time = fs::last_write_time(path);
  const Outcome before = Run(path, Cached());
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-5000, std::ios::end);
    file.write("\1\2\3\4\5\6\7\1\2\3", 10);
  }
  fs::last_write_time(path, time);
  const Outcome cached = Run(path, Cached());
  EXPECT_THAT(cached.report.cache_miss, HasSubstr("has changed"));
  EXPECT_EQ(cached.logits, Run(path, {}).logits);
  EXPECT_NE(cached.logits, before.logits);
  EXPECT_EQ(Run(path, Cached()).report.source, WeightSource::kCache);
}

TEST_F(WeightsTest, ACopyOfAModelWithItsTimeUsesTheCacheOfThePath) {
  const std::string path = CopyOf("q8_0");
  const Outcome before = Run(path, Cached());
  fs::rename(path, path + ".old");
  fs::copy_file(path + ".old", path);
  const Outcome after = Run(path, Cached());
  EXPECT_EQ(after.report.source, WeightSource::kCache);
  EXPECT_EQ(after.logits, before.logits);
}

TEST_F(WeightsTest, AFolderThatCannotBeWrittenIsANotice) {
  const std::string path = CopyOf("q8_0");
  std::ofstream(folder_.path() + "/file") << "x";
  LoadOptions options = Cached();
  options.cache.folder = folder_.path() + "/file/cache";
  absl::Status told;
  options.notice = [&](const std::string&, const absl::Status& status) { told = status; };
  {
    TestExecutor executor(path, {.load = options});
    EXPECT_FALSE(executor.executor().weights().WaitForBackground().ok());
  }
  EXPECT_THAT(std::string(told.message()), HasSubstr(folder_.path() + "/file"));
}

TEST_F(WeightsTest, WeightsLargerThanMemoryWithoutACacheAreAnErrorWithTheNumbers) {
  const auto model = *model::LoadModel(CopyOf("q8_0"));
  ThreadPool pool(1);
  const absl::Status status = Weights::Load(model, pool, {.memory_bytes_max = 1000}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--packed-cache"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("1000 B"));
}

TEST_F(WeightsTest, SmallModelsAreNotKept) {
  LoadOptions options = Cached();
  options.cache_bytes_min = LoadOptions().cache_bytes_min;
  EXPECT_EQ(Run(CopyOf("q8_0"), options).report.cache_path, "");
  EXPECT_FALSE(fs::exists(options.cache.folder));
}

}  // namespace
}  // namespace kvist::exec
