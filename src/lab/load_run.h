#pragma once

/// @file
/// Sends a plan to a server and records what happens. One thread moves all bytes, thousands of requests at once.
/// Non-goals: what is sent (load_plan.h), figures (load_stats.h).

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "absl/status/statusor.h"
#include "lab/load_plan.h"
#include "lab/load_stats.h"
#include "serve/post_client.h"

namespace kvist::lab {

struct LoadProgress {
  double elapsed_s = 0;
  uint64_t sent = 0, answered = 0, failed = 0, running = 0;
  uint64_t pieces = 0;  ///< Of text, about a token each.
};

struct LoadRunOptions {
  serve::ServerUrl url;
  std::shared_ptr<const serve::TlsTrust> trust;  ///< Of https.
  std::string model;                             ///< "" = the request names none.
  bool chat = true;                              ///< Else completions.
  uint32_t concurrency = 0;  ///< Requests under way at most; 0 = no bound. REQUIRES: not 0 in a closed loop.
  double seconds = 0;        ///< Closed loop: no conversation begins later; 0 = no bound.
  std::chrono::milliseconds timeout{600'000};  ///< Of one request.
  boost::json::object more;                    ///< Fields of every body, above those that the run writes itself.
  /// Called a few times a second; false ends the run.
  std::function<bool(const LoadProgress&)> progress;
};

struct LoadResult {
  std::vector<LoadRecord> records;  ///< In order of their ends.
  double duration_s = 0;            ///< From the first request's due time to the last end.
  bool interrupted = false;
};

/// Errors: Unavailable when the host has no address. What fails later is in the records.
absl::StatusOr<LoadResult> RunLoad(LoadPlan& plan, const LoadRunOptions& options);

/// The body of a conversation's next request. @param answers  to its turns so far
std::string LoadRequestBody(const PlannedConversation& conversation, const std::vector<std::string>& answers,
                            const LoadRunOptions& options);

}  // namespace kvist::lab
