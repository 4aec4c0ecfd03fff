#pragma once

/// @file
/// What became of one request, counted while it ran: what it found and from whom, what it computed, what it waited for.
/// Plain data without any text. The engine thread writes it; it is handed out with the last event.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/units.h"
#include "kv/kv_memory.h"
#include "step/executor.h"

namespace kvist::engine {

struct RequestTrace {
  RequestId id{};
  // Instants on the engine's clock; kTimeNever = did not happen.
  TimeNs arrived_at = kTimeNever;      ///< At the engine.
  TimeNs began_at = kTimeNever;        ///< First had its place in memory.
  TimeNs first_token_at = kTimeNever;  ///< Sampled.
  TimeNs finished_at = kTimeNever;

  std::vector<kv::ReusedPart> reused;  ///< When it began, in order of the text.
  uint32_t prompt_tokens = 0, output_tokens = 0;
  uint32_t dropped_tokens = 0;     ///< Of the prompt, out of the view when its last token was computed.
  uint32_t computed_tokens = 0;    ///< Those computed again included.
  uint32_t recomputed_tokens = 0;  ///< It had been preempted, and these had given way meanwhile.
  uint32_t preemptions = 0;
  uint32_t own_blocks = 0;  ///< When it ended: those that it had written.

  RequestId leader{};          ///< Read what both begin with; 0 = waited for nobody.
  uint32_t leader_tokens = 0;  ///< So much of it.
  int64_t leader_wait_ns = 0;
  uint32_t restored_tokens = 0;      ///< Read from a tier below hot memory for it,
  int64_t restore_wait_ns = 0;       ///< for which it waited so long.
  int64_t preempted_ns = 0;          ///< Waited to go on,
  int64_t preempted_prefill_ns = 0;  ///< of that before the first token.

  uint32_t steps = 0;                             ///< It had a part in.
  int64_t step_ns = 0;                            ///< Sum of their times.
  uint64_t batch_requests = 0, batch_tokens = 0;  ///< Sums over these steps, its own included.
  uint32_t batch_requests_max = 0;

  /// A wait that has begun and not yet ended; kTimeNever = none.
  TimeNs waits_for_leader_since = kTimeNever, preempted_since = kTimeNever, restores_since = kTimeNever;

  void BeginLeaderWait(RequestId of, uint32_t tokens, TimeNs now) {
    if (waits_for_leader_since != kTimeNever) return;
    leader = of;
    leader_tokens = tokens;
    waits_for_leader_since = now;
  }
  void EndLeaderWait(TimeNs now) {
    if (waits_for_leader_since == kTimeNever) return;
    leader_wait_ns += now - waits_for_leader_since;
    waits_for_leader_since = kTimeNever;
  }
  void BeginRestore(TimeNs now) {
    if (restores_since == kTimeNever) restores_since = now;
  }
  void EndRestore(TimeNs now) {
    if (restores_since == kTimeNever) return;
    restore_wait_ns += now - restores_since;
    restores_since = kTimeNever;
  }
  void EndPreemption(TimeNs now) {
    if (preempted_since == kTimeNever) return;
    preempted_ns += now - preempted_since;
    if (first_token_at == kTimeNever) preempted_prefill_ns += now - preempted_since;
    preempted_since = kTimeNever;
  }
  /// @param computed  tokens of this request
  void AddStep(const step::StepResult& result, uint32_t computed) {
    const auto requests = static_cast<uint32_t>(result.plan.slices.size());
    computed_tokens += computed;
    ++steps;
    step_ns += result.finished_at - result.started_at;
    batch_requests += requests;
    batch_tokens += result.plan.tokens.size();
    batch_requests_max = std::max(batch_requests_max, requests);
  }
};

}  // namespace kvist::engine
