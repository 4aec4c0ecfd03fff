#include "platform/open_files.h"

#include <sys/resource.h>

#include <algorithm>

#include <gtest/gtest.h>

namespace kvist {
namespace {

TEST(OpenFiles, TheLimitIsWhatTheSystemAllows) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 64);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(RaiseOpenFilesLimit(), limit.rlim_max);
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, limit.rlim_max);
}

}  // namespace
}  // namespace kvist
