#pragma once

/// @file
/// A machine without a model: steps take what their work costs on a virtual clock, and every token sampled is the same.
/// The engine runs on it as on any other. Threads as step::Executor. Non-goals: what accelerators cost (device models).

#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/prng.h"
#include "sched/step_cost.h"
#include "step/executor.h"

namespace kvist::lab {

struct VirtualMachine {
  sched::StepCost cost;  ///< Prices of its work; `error_ratio` is not looked at.
  double jitter = 0;     ///< A step takes up to so much more, as a share, drawn from `seed`.
  uint64_t seed = 1;
  TokenId token{};  ///< That is sampled.
};

class VirtualExecutor final : public step::Executor {
 public:
  VirtualExecutor(const step::ExecutorLimits& limits, const VirtualMachine& machine, const Clock& clock)
      : limits_(limits), machine_(machine), clock_(clock), prng_(machine.seed) {}

  std::string_view Name() const override { return "virtual"; }
  const step::ExecutorLimits& Limits() const override { return limits_; }
  absl::Status Submit(step::StepPlan&& plan) override;
  absl::StatusOr<std::optional<step::StepResult>> Poll() override;
  std::optional<TimeNs> NextCompletion() const override {
    return result_ ? std::optional(result_->finished_at) : std::nullopt;
  }
  void SetWake(std::function<void()> /*wake*/) override {}  // Nothing happens by itself.

 private:
  const step::ExecutorLimits limits_;
  const VirtualMachine machine_;
  const Clock& clock_;
  Prng prng_;
  std::optional<step::StepResult> result_;
};

}  // namespace kvist::lab
