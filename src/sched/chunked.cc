// Decodes first, then prompts in chunks, in order of arrival, so that a long prompt never stalls running decodes for
// longer than a chunk. Source: Agrawal et al., "Taming Throughput-Latency Tradeoff in LLM Inference with
// Sarathi-Serve", OSDI 2024 (P77).

#include "sched/composed_policy.h"

namespace kvist::sched {

StepLimit LimitByChunk(const StepFacts& facts) {
  return {.request_tokens = facts.options.chunk_tokens_max};
}

std::unique_ptr<SchedulerPolicy> NewChunkedPolicy(const PolicyOptions& options) {
  return NewComposedPolicy({.name = "chunked", .limit = LimitByChunk}, options);
}

}  // namespace kvist::sched
