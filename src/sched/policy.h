#pragma once

/// @file
/// Chooses how many tokens each request advances in the next step. Prefill, chunked prefill, decode and draft
/// verification are one thing: computed tokens catching up with known tokens.

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace kvist::sched {

/// What a policy may know about a request. Snapshot; no pointers into the engine.
struct RequestView {
  RequestId id;
  TenantId tenant;
  TimeNs arrived_at;
  TimeNs first_token_due;                ///< Absolute instant; kTimeNever = no deadline.
  uint32_t tokens_known = 0;             ///< Prompt + accepted output + draft tokens.
  uint32_t tokens_computed = 0;          ///< Tokens whose KV is resident. < tokens_known.
  uint32_t blocks_held = 0;              ///< Blocks of the text that have their memory, or need none.
  uint32_t blocks_own = 0;               ///< Of these, what preemption would give back; others share the rest.
  uint32_t output_tokens_predicted = 0;  ///< 0 = unknown.
  uint64_t prefix_group = 0;             ///< Equal for requests that share their longest cached prefix; 0 = none.
  uint8_t priority = 0;                  ///< 0 = most urgent.
};

/// Hard limits of one step. A decision that exceeds any of them is a bug.
struct StepBudget {
  uint32_t tokens_max = 0;
  uint32_t requests_max = 0;
  uint32_t blocks_free = 0;   ///< After the eviction that kv has already agreed to.
  uint32_t block_tokens = 0;  ///< Tokens per KV block, power of two.
};

struct Advance {
  RequestId request;
  uint32_t tokens;  ///< 1..(tokens_known - tokens_computed).
};

/// Plain data, so a step can be logged, diffed, replayed and fuzzed.
struct StepDecision {
  std::vector<Advance> advance;    ///< Execution order. A waiting request that appears here is admitted.
  std::vector<RequestId> preempt;  ///< Running; lose their blocks before `advance` runs.

  void Clear() {
    advance.clear();
    preempt.clear();
  }
};

/// A pure function from (queues, budget, now) to a decision.
///
/// Allocates no KV, touches no queue, reads no clock. The engine validates the
/// decision against the budget, then applies all of it or none of it.
class SchedulerPolicy {
 public:
  virtual ~SchedulerPolicy() = default;

  virtual std::string_view Name() const = 0;

  /// @param running  [num_running] in admission order.
  /// @param waiting  [num_waiting] in arrival order; includes preempted requests.
  /// @param decision cleared, then filled; capacity is reused between steps.
  /// Bound: O(num_running + num_waiting), no allocation once warm.
  virtual void Decide(std::span<const RequestView> running, std::span<const RequestView> waiting,
                      const StepBudget& budget, TimeNs now, StepDecision& decision) = 0;
};

/// Decode first, then fill the remaining token budget with prefill chunks in order of arrival, so a long prompt never
/// stalls running decodes. When blocks run out, the least urgent request is preempted, of several the one admitted
/// last. Source: Agrawal et al., "Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve", OSDI 2024.
struct ChunkedOptions {
  uint32_t chunk_tokens_max = 512;  ///< Of one request in one step.
};
std::unique_ptr<SchedulerPolicy> NewChunkedPolicy(const ChunkedOptions& options);

/// "" when the decision keeps every rule of the budget and names each request at most once, else what is wrong.
std::string_view FindFault(std::span<const RequestView> running, std::span<const RequestView> waiting,
                           const StepBudget& budget, const StepDecision& decision);

struct PolicyEntry {
  std::string_view name;
  std::string_view summary;
  std::unique_ptr<SchedulerPolicy> (*make)(const ChunkedOptions& options);
};

/// Every policy, in --help order. Adding one is one row in policy.cc.
std::span<const PolicyEntry> Policies();
/// nullptr when unknown.
const PolicyEntry* FindPolicy(std::string_view name);

}  // namespace kvist::sched
