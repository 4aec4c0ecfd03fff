#pragma once

/// @file
/// An executor that computes slots of hashes (world_content.h) on a machine of prices, and looks at every slot it
/// reads: one that was never written, or that was written for another namespace, is reported at once. Reads and writes
/// happen when the step ends, so that a frame given away too early shows. Threads as step::Executor.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "kv/frame_arena.h"
#include "kv/span_table.h"
#include "sched/step_cost.h"
#include "step/executor.h"

namespace kvist::lab {

/// What its owner knows and wants to know.
struct ContentHooks {
  std::function<uint64_t(RequestId)> namespace_of;
  /// "" when the request may be computed now, else why not.
  std::function<std::string(RequestId)> fault_of;
  std::function<void(std::string_view checker, std::string message)> report;
};

class ContentExecutor final : public step::Executor {
 public:
  /// References outlive it.
  ContentExecutor(const step::ExecutorLimits& limits, const sched::StepCost& cost, const kv::SpanTable& spans,
                  const kv::FrameArena& arena, const Clock& clock, uint64_t seed, ContentHooks hooks)
      : limits_(limits),
        cost_(cost),
        spans_(spans),
        arena_(arena),
        clock_(clock),
        prng_(seed),
        hooks_(std::move(hooks)) {}

  std::string_view Name() const override { return "content"; }
  const step::ExecutorLimits& Limits() const override { return limits_; }
  absl::Status Submit(step::StepPlan&& plan) override;
  absl::StatusOr<std::optional<step::StepResult>> Poll() override;
  std::optional<TimeNs> NextCompletion() const override {
    return result_ ? std::optional(failure_.ok() ? result_->finished_at : clock_.Now()) : std::nullopt;
  }
  void SetWake(std::function<void()> /*wake*/) override {}  // Nothing happens by itself.

  /// Steps that begin from now on take so many times as long.
  void SetSlowness(double factor) { slowness_ = factor; }
  /// The step under way, or the next one, fails. @param for_good  and all others
  void Fail(absl::Status status, bool for_good) {
    failure_ = std::move(status);
    failed_for_good_ = for_good;
  }

  /// Of steps whose results were handed out.
  struct Totals {
    uint64_t steps = 0, tokens = 0, sampled = 0;
    int64_t step_ns = 0;
  };
  const Totals& totals() const { return totals_; }

 private:
  struct Place {
    FrameId frame;
    uint32_t slot;
    int32_t shift;
  };
  struct Copy {
    FrameId source, target;
  };
  absl::Status Translate(const step::StepPlan& plan);
  void Compute();
  void ComputeSlice(const step::Slice& slice, size_t& place);

  const step::ExecutorLimits limits_;
  const sched::StepCost cost_;
  const kv::SpanTable& spans_;
  const kv::FrameArena& arena_;
  const Clock& clock_;
  Prng prng_;
  const ContentHooks hooks_;
  double slowness_ = 1;
  absl::Status failure_;
  bool failed_for_good_ = false;
  std::optional<step::StepResult> result_;
  std::vector<Place> places_;  ///< Of all views of the step.
  std::vector<Copy> copies_;
  Totals totals_;
};

}  // namespace kvist::lab
