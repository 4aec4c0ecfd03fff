#pragma once

/// @file
/// Chooses how many tokens each request advances in the next step. Prefill, chunked prefill, decode and draft
/// verification are one thing: computed tokens catching up with known tokens.

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/units.h"
#include "sched/step_cost.h"

namespace kvist::sched {

/// Requests of this priority are background work: while others run or wait they have what the deadlines of these leave
/// (background.h), and a small share of the time, so that they end whatever goes on.
inline constexpr uint8_t kBackgroundPriority = UINT8_MAX;

/// What a policy may know about a request. Snapshot; no pointers into the engine.
struct RequestView {
  RequestId id;
  TenantId tenant;
  TimeNs arrived_at{0};
  TimeNs first_token_due = kTimeNever;  ///< Absolute instant; kTimeNever = no deadline.
  TimeNs next_token_due = kTimeNever;   ///< As this, of the token after one that was given.
  uint32_t tokens_known = 0;            ///< Prompt + accepted output + draft tokens.
  uint32_t tokens_computed = 0;         ///< Tokens whose KV is resident. < tokens_known.
  uint32_t tokens_cached = 0;   ///< Of one that waits: that it need not compute, as far as is known. < tokens_known.
  uint32_t context_tokens = 0;  ///< Of those, the ones in view: what the next token reads.
  uint32_t blocks_held = 0;     ///< Blocks of the text that have their memory, or need none.
  uint32_t blocks_own = 0;      ///< Of these, what preemption would give back; others share the rest.
  uint32_t output_tokens_predicted = 0;  ///< All of them; 0 = unknown.
  uint32_t output_tokens = 0;            ///< Given so far.
  uint64_t tenant_received = 0;          ///< Virtual counter of its tenant (TenantShare).
  uint64_t prefix_group =
      0;                 ///< Equal for requests that share a long beginning, and the earlier the smaller; 0 = none.
  uint8_t priority = 0;  ///< 0 = most urgent.
  bool granted = false;  ///< One that waits was let in before: what it has waited for since is there.
};

/// Hard limits of one step, and what work in it costs. A decision that exceeds any limit is a bug.
struct StepBudget {
  uint32_t tokens_max = 0;
  uint32_t requests_max = 0;
  uint32_t blocks_free = 0;   ///< After the eviction that kv has already agreed to.
  uint32_t block_tokens = 0;  ///< Tokens per KV block, power of two.
  StepCost cost;              ///< As learnt so far.
  double busy_share = 0;      ///< Of the recent time, that prompts had work for: 0..1 (BusyShare).
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
  /// Bound: O(n log n) in the number of requests, no allocation once warm.
  virtual void Decide(std::span<const RequestView> running, std::span<const RequestView> waiting,
                      const StepBudget& budget, TimeNs now, StepDecision& decision) = 0;
};

/// What a user may set. Which policy looks at what is said in docs/scheduling.md.
struct PolicyOptions {
  uint32_t chunk_tokens_max = 512;  ///< Of one prompt in one step; splitfuse: of the whole step.
  uint32_t prefills_max = 4;        ///< Prompts that are read in one step, where the policy bounds it.
};

// Each in a file of its own, with what it is for and where it comes from.
std::unique_ptr<SchedulerPolicy> NewFairDeadlinePolicy(const PolicyOptions& options);
std::unique_ptr<SchedulerPolicy> NewFairPolicy(const PolicyOptions& options);
std::unique_ptr<SchedulerPolicy> NewDeadlinePolicy(const PolicyOptions& options);
std::unique_ptr<SchedulerPolicy> NewChunkedPolicy(const PolicyOptions& options);
std::unique_ptr<SchedulerPolicy> NewSplitFusePolicy(const PolicyOptions& options);
std::unique_ptr<SchedulerPolicy> NewSjfPolicy(const PolicyOptions& options);
std::unique_ptr<SchedulerPolicy> NewPrefixBatchPolicy(const PolicyOptions& options);
std::unique_ptr<SchedulerPolicy> NewFcfsPolicy(const PolicyOptions& options);

/// The policy of a server that is not told otherwise.
inline constexpr std::string_view kDefaultPolicy = "fair-deadline";

/// "" when the decision keeps every rule of the budget and names each request at most once, else what is wrong.
/// Bound: linear in the number of requests.
std::string_view FindFault(std::span<const RequestView> running, std::span<const RequestView> waiting,
                           const StepBudget& budget, const StepDecision& decision);

struct PolicyEntry {
  std::string_view name;
  std::string_view summary;
  std::unique_ptr<SchedulerPolicy> (*make)(const PolicyOptions& options);
};

/// Every policy, in --help order. Adding one is one row in policy.cc.
std::span<const PolicyEntry> Policies();
/// nullptr when unknown.
const PolicyEntry* FindPolicy(std::string_view name);

}  // namespace kvist::sched
