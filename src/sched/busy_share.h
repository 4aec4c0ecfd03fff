#pragma once

/// @file
/// How much of the recent time prompts had work for: near 1, the machine is about to fall behind, and what it reads an
/// hour matters more than how evenly tokens come. Threads: one. Non-goals: predicting waits (wait_estimate.h).

#include <cmath>

#include "base/clock.h"

namespace kvist::sched {

/// Share of time, older time weighted less by e for each half minute.
class BusyShare {
 public:
  static constexpr double kForgetNs = 30e9;

  /// A step ended at `now` and had taken `step_ns`. The time between steps counts as free.
  /// @param busy  it had prompts in it, or somebody waits for a place
  void Observe(TimeNs now, int64_t step_ns, bool busy) {
    const auto decay = [](int64_t ns) { return std::exp(-static_cast<double>(ns) / kForgetNs); };
    const int64_t since = now - last_;
    share_ *= decay(since);
    if (busy) share_ += 1 - decay(step_ns < since ? step_ns : since);
    last_ = now;
  }
  /// 0..1
  double share() const { return share_; }

 private:
  TimeNs last_{0};
  double share_ = 0;
};

}  // namespace kvist::sched
