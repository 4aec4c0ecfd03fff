#include "kv/frame_arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include <unistd.h>

namespace kvist::kv {
namespace {

/// Physical memory of this process.
int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(FrameArena, TakesMemoryAsFramesAreUsed) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer keeps notes of its own on every page";
#endif
  constexpr uint64_t kFrameBytes = 4 << 20;
  constexpr uint32_t kFrames = 512;
  constexpr int64_t kSlack = 8 << 20;  // Whatever else the process does.
  const int64_t before = ResidentBytes();
  const FrameArena arena = *FrameArena::Create(kFrames, kFrameBytes);
  EXPECT_LT(ResidentBytes() - before, kSlack);
  for (const uint32_t frame : {0u, 100u, 101u, 511u}) std::memset(arena.Frame(FrameId{frame}), 1, kFrameBytes);
  const int64_t taken = ResidentBytes() - before;
  EXPECT_GT(taken, int64_t{4 * kFrameBytes} - kSlack);
  EXPECT_LT(taken, int64_t{4 * kFrameBytes} + kSlack);
  EXPECT_EQ(arena.Frame(FrameId{100}) + kFrameBytes, arena.Frame(FrameId{101}));
}

}  // namespace
}  // namespace kvist::kv
