#include "cost/link_queue.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/prng.h"

namespace kvist::cost {
namespace {

/// 1 GB/s: a byte a nanosecond.
device::Link Plain(double setup_ns, double latency_ns) {
  device::Link link{.name = "plain", .bandwidth = 1e9, .latency_ns = latency_ns, .setup_ns = setup_ns};
  link.efficiency = device::Curve(1);
  return link;
}

TEST(LinkQueue, TransfersFollowEachOtherAndEachHasItsSetup) {
  LinkQueue queue(Plain(30, 20));
  EXPECT_EQ(queue.ServiceNs(100), 150);
  EXPECT_EQ(queue.ServiceNs(0), 0);
  EXPECT_EQ(queue.Take(1000, 100), 1150);
  EXPECT_EQ(queue.WaitNs(1050), 100);
  EXPECT_EQ(queue.Take(1050, 50), 1250) << "after the first";
  EXPECT_EQ(queue.WaitNs(2000), 0);
  EXPECT_EQ(queue.Take(2000, 50), 2100) << "the link was idle";
  EXPECT_EQ(queue.use().transfers, 3u);
  EXPECT_EQ(queue.use().bytes, 200);
  EXPECT_EQ(queue.use().waited_ns, 100);
  EXPECT_EQ(queue.use().busy_ns, 350);
}

TEST(LinkQueue, RandomArrivalsWaitAsQueueingTheorySays) {
  // M/D/1 (Pollaczek, Khinchine): the mean wait is rho / (2 (1 - rho)) services.
  constexpr int kTransfers = 400'000;
  for (const double load : {0.3, 0.6, 0.9}) {
    LinkQueue queue(Plain(300, 700));
    const auto service = static_cast<double>(queue.ServiceNs(9'000));
    ASSERT_EQ(service, 10'000);
    Prng prng(3);
    double at_ns = 0;
    for (int i = 0; i < kTransfers; ++i) {
      at_ns += -std::log(1 - prng.Uniform()) * service / load;
      queue.Take(static_cast<int64_t>(at_ns), 9'000);
    }
    const double waited = static_cast<double>(queue.use().waited_ns) / kTransfers / service;
    EXPECT_NEAR(waited / (load / (2 * (1 - load))), 1, 0.04) << load;
    EXPECT_NEAR(static_cast<double>(queue.use().busy_ns) / at_ns, load, 0.01);
  }
}

}  // namespace
}  // namespace kvist::cost
