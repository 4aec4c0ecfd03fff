// Replays the corpus of the fuzzer that differences instruction sets, and draws more cases.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/prng.h"
#include "kernels/isa_case_testutil.h"

namespace kvist::kernels {
namespace {

TEST(IsaCaseTest, TheCorpusOfTheFuzzerShowsNoDifference) {
  uint32_t cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KVIST_SOURCE_DIR "/tests/fuzz/isa")) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(testing::DifferenceOfCase({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}), "")
        << entry.path().filename();
    ++cases;
  }
  EXPECT_GE(cases, 8u);
}

TEST(IsaCaseTest, RandomCasesShowNoDifference) {
  Prng prng(1);
  for (uint32_t round = 0; round < 300; ++round) {
    std::vector<uint8_t> bytes(1 + prng.Below(200));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(prng.Next());
    ASSERT_EQ(testing::DifferenceOfCase(bytes), "") << "round " << round;
  }
}

}  // namespace
}  // namespace kvist::kernels
