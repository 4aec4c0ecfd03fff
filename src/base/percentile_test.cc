#include "base/percentile.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvist {
namespace {

double Of(std::vector<double> values, double share) {
  return Percentile(values, share);
}

TEST(Percentile, IsLinearBetweenNeighboursInAnyOrder) {
  EXPECT_DOUBLE_EQ(Of({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(Of({5, 4, 3, 2, 1}, 0.9), 4.6);
  EXPECT_DOUBLE_EQ(Of({1, 5, 2, 4, 3}, 0), 1);
  EXPECT_DOUBLE_EQ(Of({1, 5, 2, 4, 3}, 1), 5);
  EXPECT_DOUBLE_EQ(Of({7}, 0.99), 7);
}

}  // namespace
}  // namespace kvist
