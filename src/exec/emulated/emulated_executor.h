#pragma once

/// @file
/// A device that is not there: a step takes as long as the cost model says (cost/step_model.h), and its tokens are
/// synthetic, or those of a small model that another executor runs meanwhile. The engine runs on it as on any other: in
/// real time, when a timer wakes it, or on a virtual clock. With synthetic tokens it has no pages, so that none can be
/// missing; what the results say of logits, states and attention is made up, but has the right shape and is the same
/// for the same text. Threads as step::Executor. Non-goals: queues, policies, memory.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "cost/step_model.h"
#include "exec/emulated/synthetic_tokens.h"
#include "step/executor.h"

namespace kvist::exec {

/// What somebody should know of an emulation that goes on. Each is called once, on the caller's thread; may be empty.
struct EmulationNotices {
  /// A small model took longer for a step than the device.
  std::function<void(int64_t device_ns, int64_t model_ns)> late;
  /// A step lay outside of what the profile measured.
  std::function<void(const cost::Excess& excess)> outside_profile;
};

struct EmulatedOptions {
  step::ExecutorLimits limits;
  SyntheticTokens tokens;
  /// A timer calls the wake function, and a step takes what it does without the host, whose part this process has
  /// itself. For real clocks; a virtual one is advanced by whoever owns it.
  bool real_time = false;
  /// A step comes back when it starts, with the instant at which it will end: the next one is planned while it runs, as
  /// servers of GPUs with asynchronous scheduling do. Only for replays, which read the instants of results.
  bool plan_ahead = false;
  EmulationNotices notices;
};

/// Sums since the start.
struct EmulatedTotals {
  uint64_t steps = 0;
  uint64_t tokens = 0;  ///< Rows, those of contexts that were computed again included.
  cost::StepCost cost;  ///< Of them all.
};

/// Steps for which a small model took longer than the device: they end when it has.
struct LateSteps {
  uint64_t steps = 0;
  int64_t ns = 0;  ///< By how much, in all.
};

class EmulatedExecutor final : public step::Executor {
 public:
  /// REQUIRES: options.tokens.alphabet is not empty; steps_in_flight_max is 1.
  EmulatedExecutor(cost::StepModel model, EmulatedOptions options, const Clock& clock);
  /// Every step is computed by `computes` as well: its results are the step's, at the device's time or when they are
  /// there, whichever is later. The limits are those of `computes`, which is on the same clock.
  /// REQUIRES: options.real_time.
  EmulatedExecutor(cost::StepModel model, EmulatedOptions options, const Clock& clock,
                   std::unique_ptr<step::Executor> computes);
  ~EmulatedExecutor() override;

  std::string_view Name() const override { return name_; }
  const step::ExecutorLimits& Limits() const override { return options_.limits; }
  absl::Status Submit(step::StepPlan&& plan) override;
  absl::StatusOr<std::optional<step::StepResult>> Poll() override;
  void Recycle(step::StepResult&& result) override;
  std::optional<TimeNs> NextCompletion() const override;
  void SetWake(std::function<void()> wake) override;

  /// When the last step that was polled ends, or has ended.
  TimeNs last_finished_at() const { return last_finished_at_; }
  /// Of the caller's thread.
  const EmulatedTotals& totals() const { return totals_; }
  const cost::StepModel& model() const { return model_; }
  /// Any thread.
  LateSteps late() const { return {late_steps_.load(), late_ns_.load()}; }

 private:
  /// What the model says of the step under way.
  struct Modelled {
    TimeNs started_at{0}, finished_at{0};
    uint64_t bytes_moved = 0, kv_bytes_read = 0;
  };

  cost::StepLoad LoadOf(const step::StepPlan& plan) const;
  uint32_t ViewOf(const step::StepPlan& plan, const step::Slice& slice) const;
  TokenId NextOf(const step::StepPlan& plan, const step::Slice& slice, uint32_t row) const;
  void AppendBest(TokenId next, uint32_t count, std::vector<step::TokenLogprob>& out) const;
  void FillOutputs(const step::StepPlan& plan, step::StepResult& result) const;
  void FillSampled(const step::StepPlan& plan, const step::Slice& slice, step::StepResult& result) const;
  void FillExtras(const step::StepPlan& plan, const step::Slice& slice, step::StepResult& result) const;
  void Synthesize(step::StepPlan&& plan);
  void TakeComputed();
  void TimerLoop();

  cost::StepModel model_;
  const EmulatedOptions options_;
  const Clock& clock_;
  const std::string name_;
  const std::unique_ptr<step::Executor> computes_;  ///< Null = tokens are synthetic.
  bool computing_ = false;                          ///< It has the step under way.
  std::optional<step::StepResult> result_;          ///< Of the step under way, but for what is modelled.
  step::StepResult spare_;
  Modelled step_;
  TimeNs ready_at_{0}, device_free_at_{0}, last_finished_at_{0};
  EmulatedTotals totals_;
  std::atomic<uint64_t> late_steps_{0};
  std::atomic<int64_t> late_ns_{0};

  std::mutex mutex_;  ///< Guards what follows.
  std::condition_variable changed_;
  std::function<void()> wake_;
  std::optional<TimeNs> timer_;                    ///< When to call it, at the earliest.
  uint64_t steps_given_ = 0, steps_computed_ = 0;  ///< To and by `computes_`.
  bool stopping_ = false;
  std::thread timer_thread_;
};

}  // namespace kvist::exec
