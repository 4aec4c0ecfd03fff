#include "engine/step_log.h"

#include <algorithm>
#include <ranges>
#include <utility>

namespace kvist::engine {

void StepLog::Add(StepRecord& record) {
  {
    std::lock_guard lock(mutex_);
    if (ring_.size() < steps_max_) {
      ring_.push_back(std::exchange(record, {}));
      return;
    }
    std::swap(ring_[begin_], record);
    begin_ = (begin_ + 1) % steps_max_;
  }
  record.parts.clear();
  record.preempted.clear();
}

/// The steps are in order of time and of id: where it holds first, it holds for all that follow.
template <class Later>
size_t StepLog::FirstWhere(const Later& later) const {
  const auto indices = std::views::iota(size_t{0}, ring_.size());
  return static_cast<size_t>(std::ranges::partition_point(indices, [&](size_t i) { return !later(At(i)); }) -
                             indices.begin());
}

std::vector<StepRecord> StepLog::Since(std::optional<StepId> after, size_t count_max) const {
  std::vector<StepRecord> out;
  std::lock_guard lock(mutex_);
  size_t index = after ? FirstWhere([&](const StepRecord& step) { return step.id > *after; }) : 0;
  index = std::max(index, ring_.size() - std::min(count_max, ring_.size()));
  for (; index < ring_.size(); ++index) out.push_back(At(index));
  return out;
}

std::vector<StepTime> StepLog::Times(TimeNs since) const {
  std::vector<StepTime> out;
  std::lock_guard lock(mutex_);
  for (size_t i = FirstWhere([&](const StepRecord& step) { return step.finished_at > since; }); i < ring_.size(); ++i) {
    out.push_back({At(i).started_at, At(i).finished_at});
  }
  return out;
}

}  // namespace kvist::engine
