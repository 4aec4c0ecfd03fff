#include "base/counted.h"

#include <gtest/gtest.h>

namespace kvist {
namespace {

TEST(Counted, OneIsNotMany) {
  EXPECT_EQ(Counted(1, "request"), "1 request");
  EXPECT_EQ(Counted(0, "request"), "0 requests");
  EXPECT_EQ(Counted(21, "request"), "21 requests");
  EXPECT_EQ(Counted(812'000, "block"), "812,000 blocks");
}

}  // namespace
}  // namespace kvist
