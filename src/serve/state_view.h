#pragma once

/// @file
/// GET /kvist/state and GET /kvist/steps: what the server is doing, for a dashboard that asks every second. Instants
/// are milliseconds since the server's start. API: docs/serving.md, "Watching". Threads: any; pure.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/step_log.h"
#include "serve/request_log.h"
#include "serve/tenants.h"

namespace kvist::serve {

inline constexpr double kLatencyWindowS = 300;
inline constexpr int64_t kStepWindowNs = 60'000'000'000;
inline constexpr size_t kStepsMax = 512;          ///< In one answer; the last ones.
inline constexpr size_t kStateRequestsMax = 256;  ///< Of requests under way; more are counted only.

/// What a state is made of, beside the snapshot.
struct StateSources {
  std::string_view model;
  const engine::EngineStats stats;
  std::vector<engine::StepTime> steps;  ///< Of the last kStepWindowNs.
  boost::json::object latencies;        ///< RecentLatencies::Summary.
  const RequestLog& log;
  const Tenants& tenants;
  bool keeps_usage = false;  ///< There is something at /kvist/usage.
  TimeNs started_at{0};      ///< Of the server.
};

std::string StateBody(const engine::MemorySnapshot& snapshot, const StateSources& sources);

/// "since=ID" -> the id; "" -> nullopt; parameters of other names are ignored. Errors: InvalidArgument.
absl::StatusOr<std::optional<StepId>> ParseStepsQuery(std::string_view query);

std::string StepsBody(const std::vector<engine::StepRecord>& steps, const RequestLog& log, TimeNs started_at,
                      TimeNs now);

}  // namespace kvist::serve
