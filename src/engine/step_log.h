#pragma once

/// @file
/// The last steps of the engine: when, for whom, how many tokens. Bounded: the oldest goes first. Threads: one adds,
/// any read; adding takes well below a microsecond and, once all places have been used, no memory. Non-goals: text,
/// names of requests as their clients know them, plans (step/executor.h).

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/units.h"

namespace kvist::engine {

/// What a request had of a step.
struct StepPart {
  RequestId request;
  uint32_t prefill_tokens = 0;  ///< Read: of the prompt, or once more after a preemption.
  uint32_t decode_tokens = 0;   ///< The token sampled last, on the way to the next one.
  int64_t waited_ns = 0;        ///< In its first step: from its arrival until then.
  friend bool operator==(const StepPart&, const StepPart&) = default;
};

struct StepRecord {
  StepId id;
  TimeNs started_at{0}, finished_at{0};
  std::vector<StepPart> parts;       ///< In order of the plan.
  std::vector<RequestId> preempted;  ///< Put back before it, for lack of memory.
};

/// One step without its parts.
struct StepTime {
  TimeNs started_at{0}, finished_at{0};
};

class StepLog {
 public:
  explicit StepLog(size_t steps_max = 1024) : steps_max_(steps_max) {}

  /// Takes what `record` holds and leaves it empty, with the buffers of one that is forgotten. Ids ascend.
  void Add(StepRecord& record);

  /// The steps after `after` (nullopt: all), in order; only the last `count_max` of them.
  std::vector<StepRecord> Since(std::optional<StepId> after, size_t count_max) const;

  /// Of the steps that finished after `since`, in order.
  std::vector<StepTime> Times(TimeNs since) const;

 private:
  const StepRecord& At(size_t index) const { return ring_[(begin_ + index) % ring_.size()]; }
  template <class Later>
  size_t FirstWhere(const Later& later) const;

  const size_t steps_max_;
  mutable std::mutex mutex_;  ///< Guards the rest.
  std::vector<StepRecord> ring_;
  size_t begin_ = 0;  ///< Of the oldest.
};

}  // namespace kvist::engine
