// What the engine notes about a request while it runs.

#include <algorithm>

#include "engine/engine.h"

namespace kvist::engine {

/// The request has its place in memory, for the first time or after a preemption.
void Engine::TraceBegin(Request& request) {
  RequestTrace& trace = request.trace;
  const TimeNs now = clock_.Now();
  trace.EndLeaderWait(now);
  trace.EndRestore(now);
  trace.EndPreemption(now);
  if (trace.began_at != kTimeNever) {
    const uint32_t recomputed = request.lost_tokens - std::min(request.lost_tokens, request.computed);
    trace.recomputed_tokens += recomputed;
    request.meter->recomputed_tokens += recomputed;
    return;
  }
  trace.began_at = now;
  request.meter->queue_ns = now - request.arrived_at;
  trace.reused = memory_.ReusedParts(request.id);
}

/// The tokens of `slice` are computed, and nothing has been sampled yet.
void Engine::TraceStep(Request& request, const step::StepResult& result, const step::Slice& slice) {
  request.trace.AddStep(result, slice.commit_count);
  // What a preempted request reads again of its own output is reading.
  const uint32_t decoded = slice.sampling && request.output_count() > 0 ? std::min(slice.commit_count, 1u) : 0;
  const bool first = request.trace.steps == 1;
  record_.parts.push_back({.request = request.id,
                           .prefill_tokens = slice.commit_count - decoded,
                           .decode_tokens = decoded,
                           .waited_ns = first ? std::max<int64_t>(result.started_at - request.arrived_at, 0) : 0});
}

std::shared_ptr<const RequestTrace> Engine::TraceAtEnd(const Request& request) const {
  auto trace = std::make_shared<RequestTrace>(request.trace);
  trace->id = request.id;
  trace->arrived_at = request.arrived_at;
  trace->finished_at = clock_.Now();
  trace->EndLeaderWait(trace->finished_at);
  trace->EndPreemption(trace->finished_at);
  trace->output_tokens = request.usage.output_tokens;
  trace->dropped_tokens = request.usage.dropped_tokens;
  if (request.has_memory) trace->own_blocks = memory_.BlocksOwn(request.id);
  return trace;
}

}  // namespace kvist::engine
