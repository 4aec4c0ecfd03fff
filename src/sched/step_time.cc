#include "sched/step_time.h"

#include <cmath>

namespace kvist::sched {
namespace {

constexpr double kForget = 0.005;        // At each step of a kind, of what is known of it,
constexpr double kForgetSooner = 0.1;    // and so many times the usual error more, when predictions are off.
constexpr double kPriorWeight = 0.02;    // Of each price of the prior, in steps.
constexpr double kHuber = 1.5;           // In usual errors.
constexpr double kUsualErrorMin = 0.02;  // Clocks and caches differ by so much.
constexpr double kUsualErrorRate = 1.0 / 16, kScaleRate = 1.0 / 32;
constexpr double kSettled = 1e-6;  // A sweep that moves no price by more, as a share, is the last one.
constexpr int kSweeps = 12;        // Starts where the last step ended, so few are enough.

}  // namespace

void StepTimeModel::Observe(const StepWork& work, int64_t step_ns) {
  if (step_ns <= 0 || work.tokens == 0) return;
  const auto measured = static_cast<double>(step_ns);
  const StepCost::Amounts amounts = StepCost::AmountsOf(work);
  const double ratio = std::log(measured / prior_.Ns(work));
  log_scale_ = steps_ == 0 ? ratio : log_scale_ + kScaleRate * (ratio - log_scale_);
  if (steps_ == 0) Solve();  // The first step has set the scale; only now is a prediction worth being compared.
  const double predicted = cost_.Ns(work);
  TrackError(predicted, measured);

  const double deviation = std::abs(measured - predicted) / predicted;
  const double weight = std::min(1.0, kHuber * usual_error_ / std::max(deviation, 1e-9));
  usual_error_ += kUsualErrorRate * (std::min(deviation, 4 * usual_error_) - usual_error_);
  usual_error_ = std::max(usual_error_, kUsualErrorMin);

  // Errors count relative to the size of the step, whatever the speed of the machine: that is what the prior is for.
  const double unit = prior_.Ns(work);
  const double keep = 1 - kForget - kForgetSooner * std::min(usual_error_, 0.5);
  Sums& sums = work.prompt_tokens > 0 ? with_prompts_ : decodes_;
  for (size_t i = 0; i < kKinds; ++i) {
    sums.b[i] = keep * sums.b[i] + weight * amounts[i] * measured / (unit * unit);
    for (size_t j = 0; j < kKinds; ++j) {
      sums.a[i][j] = keep * sums.a[i][j] + weight * amounts[i] * amounts[j] / (unit * unit);
    }
  }
  ++steps_;
  Solve();
}

/// Minimises the sum of squared errors with no price below 0, one price at a time.
void StepTimeModel::Solve() {
  const double scale = std::exp(log_scale_);
  Sums sums;
  for (size_t i = 0; i < kKinds; ++i) {
    const double prior_weight = kPriorWeight / (prior_.ns[i] * prior_.ns[i]);
    sums.b[i] = with_prompts_.b[i] + decodes_.b[i] + prior_weight * prior_.ns[i] * scale;
    for (size_t j = 0; j < kKinds; ++j) sums.a[i][j] = with_prompts_.a[i][j] + decodes_.a[i][j];
    sums.a[i][i] += prior_weight;
  }
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    bool settled = true;
    for (size_t i = 0; i < kKinds; ++i) {
      double rest = sums.b[i];
      for (size_t j = 0; j < kKinds; ++j) rest -= j == i ? 0 : sums.a[i][j] * cost_.ns[j];
      const double ns = std::max(0.0, rest / sums.a[i][i]);
      settled = settled && std::abs(ns - cost_.ns[i]) <= kSettled * ns;
      cost_.ns[i] = ns;
    }
    if (settled) return;
  }
}

void StepTimeModel::TrackError(double predicted_ns, double step_ns) {
  if (steps_ == 0) return;  // That one was fitted.
  double& slot = errors_[steps_ % kErrorWindow];
  errors_sum_ -= slot;
  slot = std::abs(predicted_ns - step_ns) / step_ns;
  errors_sum_ += slot;
  cost_.error_ratio = std::max(0.0, errors_sum_) / static_cast<double>(std::min<uint64_t>(steps_, kErrorWindow));
}

}  // namespace kvist::sched
