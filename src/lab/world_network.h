#pragma once

/// @file
/// Messages between the router and workers of a simulated world: late, lost, doubled, overtaking each other, or stopped
/// by a partition. Threads: one.

#include <functional>
#include <vector>

#include "base/prng.h"
#include "lab/sim_scenario.h"
#include "lab/world_log.h"

namespace kvist::lab {

class SimNetwork {
 public:
  SimNetwork(WorldLog& log, const SimScenario& scenario)
      : log_(log), scenario_(scenario), prng_(Mix64(scenario.seed ^ 0x6e6574)), cut_(scenario.workers, 0) {}

  /// To or from a worker. `deliver` is called once, twice or not at all.
  void Send(uint32_t worker, const std::function<void()>& deliver) {
    const int copies = prng_.Uniform() < scenario_.duplicate_share ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      const bool lost = prng_.Uniform() < scenario_.loss_share + loss_;
      const double ms = scenario_.delay_min_ms + (scenario_.delay_max_ms - scenario_.delay_min_ms) * prng_.Uniform();
      if (lost || cut_[worker] > 0) continue;
      log_.After(static_cast<int64_t>(ms * 1e6), [this, worker, deliver] {
        if (cut_[worker] == 0) deliver();
      });
    }
  }
  /// Partitions and losses add up.
  void Cut(uint32_t worker, int change) { cut_[worker] += change; }
  void Lose(double share) { loss_ += share; }

 private:
  WorldLog& log_;
  const SimScenario& scenario_;
  Prng prng_;
  std::vector<int> cut_;
  double loss_ = 0;
};

}  // namespace kvist::lab
