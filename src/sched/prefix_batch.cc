// For batches without deadlines. Who shares a long beginning runs together, so that it is computed once and given up
// early; those with long answers for their prompts go first, so that their decodes fill the steps in which later
// prompts are read; and a step takes all it can. Within ten minutes of arrival, so that nobody waits for ever. Source:
// Zheng et al., "BatchLLM" (P98).

#include <algorithm>
#include <cmath>

#include "sched/composed_policy.h"

namespace kvist::sched {
namespace {

constexpr int64_t kWindowNs = 600'000'000'000;
constexpr int kRatioSteps = 64;  // Of the logarithm, either way; more are as one.

Rank RankByPrefix(const RequestView& view, const StepFacts& /*facts*/) {
  const auto window = static_cast<double>(view.arrived_at.value / kWindowNs);
  const double output = std::max(view.output_tokens_predicted, 1u);
  // Groups of about the same ratio are told apart by their number, so that each stays together.
  const double ratio = std::round(std::log2(output / std::max(view.tokens_known, 1u)));
  const double group = view.prefix_group != 0 ? static_cast<double>(view.prefix_group) : HUGE_VAL;
  return {window * (2 * kRatioSteps) - std::clamp<double>(ratio, -kRatioSteps + 1, kRatioSteps - 1), group};
}

}  // namespace

std::unique_ptr<SchedulerPolicy> NewPrefixBatchPolicy(const PolicyOptions& options) {
  return NewComposedPolicy({.name = "prefix-batch", .rank = RankByPrefix}, options);
}

}  // namespace kvist::sched
