#pragma once

/// @file
/// An executor whose results a test computes from the plan. One step at a time; done as soon as it is submitted.
/// Threads as step::Executor.

#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "step/executor.h"

namespace kvist::lab {

class FakeExecutor final : public step::Executor {
 public:
  /// Fills in what the plan asks for: scores, sampled tokens.
  using Compute = std::function<void(const step::StepPlan& plan, step::StepResult& result)>;

  FakeExecutor(const step::ExecutorLimits& limits, Compute compute) : limits_(limits), compute_(std::move(compute)) {}

  std::string_view Name() const override { return "fake"; }
  const step::ExecutorLimits& Limits() const override { return limits_; }
  absl::Status Submit(step::StepPlan&& plan) override {
    if (result_) return absl::UnavailableError("one step at a time");
    result_.emplace();
    result_->id = plan.id;
    compute_(plan, *result_);
    result_->plan = std::move(plan);
    ++steps_;
    if (wake_) wake_();
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<step::StepResult>> Poll() override { return std::exchange(result_, std::nullopt); }
  std::optional<TimeNs> NextCompletion() const override { return std::nullopt; }
  void SetWake(std::function<void()> wake) override { wake_ = std::move(wake); }

  uint64_t steps() const { return steps_; }

 private:
  const step::ExecutorLimits limits_;
  const Compute compute_;
  std::function<void()> wake_;
  std::optional<step::StepResult> result_;
  uint64_t steps_ = 0;
};

}  // namespace kvist::lab
