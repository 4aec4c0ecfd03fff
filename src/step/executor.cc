#include "step/executor.h"

namespace kvist::step {

void StepPlan::Clear() {
  slices.clear();
  tokens.clear();
  segments.clear();
  copies.clear();
  block_copies.clear();
  counts.clear();
  biases.clear();
  allowed.clear();
  score_targets.clear();
  mass_ranges.clear();
}

}  // namespace kvist::step
