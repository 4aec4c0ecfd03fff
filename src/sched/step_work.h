#pragma once

/// @file
/// The work that a plan asks for, in the terms that prices are learnt in. Pure. Threads: any.

#include "sched/step_cost.h"
#include "step/executor.h"

namespace kvist::sched {

inline StepWork WorkOf(const step::StepPlan& plan) {
  StepWork work;
  for (const step::Slice& slice : plan.slices) {
    uint32_t view = 0;
    for (uint32_t i = 0; i < slice.segments_count; ++i) view += plan.segments[slice.segments_begin + i].tokens_count;
    work.Add(slice.tokens_count, view - slice.tokens_count, slice.sampling.has_value());
  }
  return work;
}

}  // namespace kvist::sched
