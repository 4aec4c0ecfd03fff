#include "kv/lock_queue_testutil.h"

#include <algorithm>
#include <queue>
#include <vector>

#include "base/check.h"
#include "base/prng.h"
#include "kv/frame_pool.h"

namespace kvist::kv {

LockQueueResult SimulateLocks(const LockQueueModel& model, uint64_t operations, uint64_t seed) {
  KVIST_CHECK(!model.think_ns.empty() && !model.hold_ns.empty() && operations >= 10);
  struct Arrival {
    double at_ns;
    uint32_t thread;
    bool operator>(const Arrival& other) const {
      return std::pair(at_ns, thread) > std::pair(other.at_ns, other.thread);
    }
  };
  Prng prng(seed);
  const auto draw = [&](std::span<const double> samples) { return samples[prng.Below(samples.size())]; };
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> arrivals;
  for (uint32_t t = 0; t < model.threads; ++t) arrivals.push({draw(model.think_ns), t});
  std::vector<double> free_at_ns(model.buckets, 0.0);
  std::vector<uint64_t> done(model.threads, 0);
  std::vector<double> waits;
  double counted_from_ns = 0, now_ns = 0;
  for (uint64_t i = 0; i < operations; ++i) {
    // In order of arrival over all locks, so in order of arrival at each.
    const Arrival next = arrivals.top();
    arrivals.pop();
    now_ns = next.at_ns;
    double& free_at = free_at_ns[FramePool::BucketOf(model.page(next.thread, done[next.thread]++), model.buckets)];
    const double start_ns = std::max(now_ns, free_at);
    free_at = start_ns + draw(model.hold_ns);
    if (i == operations / 10) counted_from_ns = now_ns;
    if (i >= operations / 10) waits.push_back(start_ns - now_ns);
    arrivals.push({free_at + draw(model.think_ns), next.thread});
  }
  LockQueueResult result;
  for (const double wait : waits) result.wait_ns += wait / static_cast<double>(waits.size());
  const auto p99 = waits.begin() + static_cast<std::ptrdiff_t>(waits.size() * 99 / 100);
  std::nth_element(waits.begin(), p99, waits.end());
  result.wait_p99_ns = *p99;
  result.operations_per_us = static_cast<double>(waits.size()) / (now_ns - counted_from_ns) * 1000;
  return result;
}

}  // namespace kvist::kv
