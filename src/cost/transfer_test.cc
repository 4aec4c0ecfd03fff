#include "cost/transfer.h"

#include <gtest/gtest.h>

namespace kvist::cost {
namespace {

device::Link Wire() {
  device::Link link;
  link.bandwidth = 10e9;
  link.latency_ns = 1000;
  link.efficiency = link.reduce_efficiency = device::Curve(0.5);
  return link;
}

TEST(Transfer, IsLatencyAndBytesOverBandwidth) {
  EXPECT_EQ(TransferNs(Wire(), 0), 0);
  EXPECT_DOUBLE_EQ(TransferNs(Wire(), 5e6), 1000 + 1e6);
}

TEST(Transfer, ReductionsCostTheirMessages) {
  const device::Link link = Wire();
  const double bytes = 8e6, whole_ns = bytes / 5e9 * 1e9;
  EXPECT_DOUBLE_EQ(AllReduceNs(link, Reduction::kRing, 8, bytes), 14 * (1000 + whole_ns / 8));
  EXPECT_DOUBLE_EQ(AllReduceNs(link, Reduction::kTree, 8, bytes), 2 * 3 * (1000 + whole_ns));
  EXPECT_DOUBLE_EQ(AllReduceNs(link, Reduction::kTree, 5, bytes), 2 * 3 * (1000 + whole_ns));
  EXPECT_DOUBLE_EQ(AllReduceNs(link, Reduction::kDoubling, 8, bytes), 3 * (1000 + whole_ns));
  EXPECT_DOUBLE_EQ(AllReduceNs(link, Reduction::kInSwitch, 8, bytes), 1000 + whole_ns);
  EXPECT_EQ(AllReduceNs(link, Reduction::kRing, 1, bytes), 0);
  EXPECT_DOUBLE_EQ(AllGatherNs(link, 4, 5e6), 3 * (1000 + 1e6));
}

TEST(Transfer, SmallSumsGoInFewStepsAndLargeOnesByRing) {
  device::Link link = Wire();
  EXPECT_EQ(AllReduceNs(link, 64, 100), AllReduceNs(link, Reduction::kDoubling, 64, 100));
  EXPECT_EQ(AllReduceNs(link, 48, 100), AllReduceNs(link, Reduction::kTree, 48, 100));
  EXPECT_EQ(AllReduceNs(link, 64, 1e9), AllReduceNs(link, Reduction::kRing, 64, 1e9));
  link.reduces_in_switch = true;
  EXPECT_EQ(AllReduceNs(link, 64, 1e9), AllReduceNs(link, Reduction::kInSwitch, 64, 1e9));
}

}  // namespace
}  // namespace kvist::cost
