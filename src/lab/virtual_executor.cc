#include "lab/virtual_executor.h"

#include "sched/step_work.h"

namespace kvist::lab {

absl::Status VirtualExecutor::Submit(step::StepPlan&& plan) {
  if (result_) return absl::UnavailableError("one step at a time");
  result_.emplace();
  result_->id = plan.id;
  for (const step::Slice& slice : plan.slices) {
    if (slice.sampling) result_->sampled.push_back(machine_.token);
  }
  result_->range_mass.assign(plan.mass_ranges.size(), 0.0f);
  const double ns = machine_.cost.Ns(sched::WorkOf(plan)) * (1 + machine_.jitter * prng_.Uniform());
  result_->started_at = clock_.Now();
  result_->finished_at = result_->started_at + static_cast<int64_t>(ns);
  result_->plan = std::move(plan);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<step::StepResult>> VirtualExecutor::Poll() {
  if (!result_ || result_->finished_at > clock_.Now()) return std::optional<step::StepResult>();
  return std::exchange(result_, std::nullopt);
}

}  // namespace kvist::lab
