#pragma once

/// @file
/// Learns what steps take on this machine with this model, while they run. Threads: one. Non-goals: planning (policies
/// use the prices).
///
/// Least squares on relative errors over the kinds of work (StepCost), with forgetting, so that it follows a machine
/// that others use too. Prices are not negative: more work never takes less time, and a policy can search for the
/// largest chunk. Steps with and without prompts are forgotten apart: an hour of decoding does not wash out what
/// prompts cost. A step that took much longer than is usual for the error (the process was stopped) pulls no harder
/// than a usual one (Huber's weights); when many come, the usual error grows and they count. Kinds that the steps say
/// nothing about stay at the prior, which is scaled to the machine by every step. Sources: recursive least squares
/// (Plackett 1950) kept as normal equations; Huber, "Robust Estimation of a Location Parameter", 1964; predicted step
/// time as the budget of a step: P32.

#include <cstdint>
#include <vector>

#include "sched/step_cost.h"

namespace kvist::sched {

class StepTimeModel {
 public:
  static constexpr uint32_t kErrorWindow = 256;  ///< Steps that the error is the mean of.

  /// A step of this work took so long.
  void Observe(const StepWork& work, int64_t step_ns);

  /// Prices as of now, with the error of late.
  const StepCost& cost() const { return cost_; }
  uint64_t steps() const { return steps_; }

 private:
  static constexpr size_t kKinds = StepCost::kKinds;
  /// Normal equations of weighted steps.
  struct Sums {
    double a[kKinds][kKinds] = {};
    double b[kKinds] = {};
  };

  void Solve();
  void TrackError(double predicted_ns, double step_ns);

  const StepCost prior_;
  StepCost cost_;
  Sums with_prompts_, decodes_;
  double log_scale_ = 0;    ///< Of the prior, natural log.
  double usual_error_ = 1;  ///< Mean relative deviation, of late.
  uint64_t steps_ = 0;
  std::vector<double> errors_ = std::vector<double>(kErrorWindow, 0);
  double errors_sum_ = 0;
};

}  // namespace kvist::sched
