// The simulation against what queueing theory says in closed form.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/prng.h"
#include "kv/lock_queue_testutil.h"

namespace kvist::kv {
namespace {

std::vector<double> Exponential(double mean, uint64_t seed) {
  Prng prng(seed);
  std::vector<double> samples(1 << 18);
  for (double& x : samples) x = -mean * std::log(1 - prng.Uniform());
  return samples;
}

PageId RandomPage(uint32_t thread, uint64_t operation) {
  return PageId{Mix64(uint64_t{thread} << 40 | operation)};
}

/// Mean wait in the machine-repair model, M/M/1 with N customers: response time N / X - Z, with the throughput X from
/// the probability of an idle server. Source: Kleinrock, "Queueing Systems", volume 1, section 3.8.
double MachineRepairWait(uint32_t threads, double think, double hold) {
  double sum = 1, term = 1;
  for (uint32_t k = 1; k <= threads; ++k) {
    term *= (threads - k + 1) * hold / think;
    sum += term;
  }
  const double throughput = (1 - 1 / sum) / hold;
  return threads / throughput - think - hold;
}

/// Mean wait in a closed network of equal servers that are visited at random: mean value analysis. Source: Reiser and
/// Lavenberg, "Mean-Value Analysis of Closed Multichain Queuing Networks", J. ACM 1980.
double NetworkWait(uint32_t threads, uint32_t servers, double think, double hold) {
  double queue = 0, response = hold;  // At one server.
  for (uint32_t n = 1; n <= threads; ++n) {
    response = hold * (1 + queue);
    queue = n / (think + response) * response / servers;
  }
  return response - hold;
}

TEST(LockQueue, OneLockIsTheMachineRepairModel) {
  for (const uint32_t threads : {2u, 8u, 64u}) {
    for (const double think : {20.0, 300.0, 5000.0}) {
      const std::vector<double> thinks = Exponential(think, 1), holds = Exponential(30, 2);
      const LockQueueResult result = SimulateLocks({threads, 1, thinks, holds, RandomPage}, 2000000, 3);
      const double expected = MachineRepairWait(threads, think, 30);
      EXPECT_NEAR(result.wait_ns, expected, 0.02 * expected + 0.05) << threads << " threads, think " << think;
      EXPECT_NEAR(NetworkWait(threads, 1, think, 30), expected, 0.001 * expected);
      EXPECT_NEAR(result.operations_per_us, threads / (think + 30 + expected) * 1000, 0.02 * result.operations_per_us);
    }
  }
}

TEST(LockQueue, ManyLocksAreAClosedNetwork) {
  for (const uint32_t buckets : {4u, 64u}) {
    for (const double think : {10.0, 300.0}) {
      const std::vector<double> thinks = Exponential(think, 4), holds = Exponential(30, 5);
      const LockQueueResult result = SimulateLocks({64, buckets, thinks, holds, RandomPage}, 2000000, 6);
      const double expected = NetworkWait(64, buckets, think, 30);
      EXPECT_NEAR(result.wait_ns, expected, 0.03 * expected) << buckets << " buckets, think " << think;
    }
  }
}

TEST(LockQueue, EqualTimesGiveEqualTurns) {
  const double think = 10, hold = 30;
  const LockQueueModel model{4, 1, {&think, 1}, {&hold, 1}, RandomPage};
  const LockQueueResult result = SimulateLocks(model, 1000, 1);
  EXPECT_NEAR(result.wait_ns, 80, 1e-9);  // Three others' holds, less the time away.
  EXPECT_DOUBLE_EQ(result.wait_p99_ns, 80);
  const LockQueueModel alone{1, 1, {&think, 1}, {&hold, 1}, RandomPage};
  EXPECT_DOUBLE_EQ(SimulateLocks(alone, 1000, 1).wait_ns, 0);
}

}  // namespace
}  // namespace kvist::kv
