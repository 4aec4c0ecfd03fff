// What the engine notes about a request while it runs.

#include <algorithm>

#include "engine/engine.h"

namespace kvist::engine {

/// The request has its place in memory, for the first time or after a preemption.
void Engine::TraceBegin(Request& request) {
  RequestTrace& trace = request.trace;
  const TimeNs now = clock_.Now();
  trace.EndLeaderWait(now);
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
