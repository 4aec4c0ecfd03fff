// Steps of one size, as long as there is work: the tokens of those that decode, and prompts cut or put together to fill
// the rest. The size is the chunk, where a step costs least per token. Source: Holmes et al., "DeepSpeed-FastGen"
// (P73).

#include <algorithm>

#include "sched/composed_policy.h"

namespace kvist::sched {
namespace {

StepLimit LimitToStepSize(const StepFacts& facts) {
  const uint32_t size = facts.options.chunk_tokens_max;
  return {.step_tokens = std::max(size, facts.decodes + facts.budget.block_tokens) - facts.decodes};
}

}  // namespace

std::unique_ptr<SchedulerPolicy> NewSplitFusePolicy(const PolicyOptions& options) {
  return NewComposedPolicy({.name = "splitfuse", .limit = LimitToStepSize}, options);
}

}  // namespace kvist::sched
