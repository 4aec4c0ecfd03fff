#include "platform/anonymous_memory.h"

#include <gtest/gtest.h>

#include <fstream>

#include "platform/process.h"
#include "platform/temp_folder.h"

namespace kvist {
namespace {

TEST(AnonymousMemory, ControlGroupsCountCachedFilesAsFree) {
  const TempFolder folder = *TempFolder::Create(testing::TempDir());
  const auto write = [&](const char* name, const char* text) { std::ofstream(folder.path() + "/" + name) << text; };
  EXPECT_FALSE(ControlGroupBytesLeft(folder.path()).has_value());
  write("memory.max", "max\n");
  write("memory.current", "700\n");
  EXPECT_FALSE(ControlGroupBytesLeft(folder.path()).has_value());
  write("memory.max", "1000\n");
  EXPECT_EQ(ControlGroupBytesLeft(folder.path()).value_or(0), 300u);
  write("memory.stat", "anon 100\ninactive_file 300\nactive_file 200\nfile 600\n");
  EXPECT_EQ(ControlGroupBytesLeft(folder.path()).value_or(0), 800u);
  write("memory.current", "2000\n");  // Above a limit that was lowered.
  write("memory.stat", "anon 2000\n");
  EXPECT_EQ(ControlGroupBytesLeft(folder.path()).value_or(1), 0u);
}

TEST(Process, KnowsItsMemoryAndItsAge) {
  const ResidentBytes before = ResidentMemory();
  EXPECT_GT(before.anonymous, 0u);
  EXPECT_GT(before.file, 0u);
  constexpr size_t kBytes = size_t{64} << 20;
  const AnonymousMemory memory = *AnonymousMemory::Map(kBytes);
  for (size_t i = 0; i < kBytes; i += 4096) memory.data()[i] = std::byte{1};
  EXPECT_GE(ResidentMemory().anonymous, before.anonymous + kBytes / 10 * 9);
  const double age_s = SecondsSinceProcessStart();
  EXPECT_GT(age_s, 0);
  EXPECT_LT(age_s, 600);
  EXPECT_GE(SecondsSinceProcessStart(), age_s);
}

}  // namespace
}  // namespace kvist
