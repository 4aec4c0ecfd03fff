#pragma once

/// @file
/// What the server counts, under vLLM's names where the meaning is the same (vllm:*), else kvist_*. Token and KV
/// numbers are the engine's own, read when somebody asks. Threads: Text and Observe* from any. Source of names:
/// https://docs.vllm.ai/en/latest/usage/metrics.html

#include <atomic>
#include <string>

#include "base/clock.h"
#include "engine/engine.h"
#include "serve/frame_sessions.h"
#include "serve/metering.h"
#include "serve/recent_latencies.h"
#include "serve/router.h"
#include "serve/tenants.h"
#include "telemetry/metrics.h"

namespace kvist::serve {

/// One finished generation. Instants are kTimeNever when they did not happen.
struct GenerationRecord {
  TimeNs received_at = kTimeNever, first_token_at = kTimeNever, finished_at = kTimeNever;
  engine::FinishReason reason = engine::FinishReason::kNone;
  engine::Usage usage;
  uint32_t faded_messages = 0, faded_tokens = 0;  ///< That left the view of a session for lack of attention.
};

class ServeMetrics {
 public:
  /// References outlive this.
  ServeMetrics(const std::string& model_id, const engine::Engine& engine, const Metering& metering,
               const Tenants& tenants, FrameSessions& frames);

  void CountReply(Route route, int http_status);
  void Observe(const GenerationRecord& record);

  /// Before the first Text.
  void AddCollector(telemetry::Collector collector) { metrics_.AddCollector(std::move(collector)); }
  std::string Text() const { return metrics_.Text(); }
  const RecentLatencies& recent() const { return recent_; }

  std::atomic<int64_t> connections_open{0};
  std::atomic<uint64_t> connections_refused{0};

 private:
  static void CollectTiers(const engine::EngineStats& stats, std::vector<telemetry::Sample>& out);
  void CollectEngine(std::vector<telemetry::Sample>& out) const;
  void CollectTenants(std::vector<telemetry::Sample>& out) const;
  void CollectFrames(std::vector<telemetry::Sample>& out) const;

  const engine::Engine& engine_;
  const Metering& metering_;
  const Tenants& tenants_;
  FrameSessions& frames_;
  telemetry::Metrics metrics_;
  telemetry::CounterFamily& replies_;
  telemetry::CounterFamily& finished_;
  telemetry::Counter& faded_messages_;
  telemetry::Counter& faded_tokens_;
  telemetry::Histogram& first_token_;
  telemetry::Histogram& per_token_;
  telemetry::Histogram& whole_;
  telemetry::Histogram& prompt_tokens_;
  telemetry::Histogram& output_tokens_;
  RecentLatencies recent_;
};

}  // namespace kvist::serve
