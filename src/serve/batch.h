#pragma once

/// @file
/// Sends the requests of a batch to a server, so many at once, and writes each answer as it comes. Patient: a server
/// that refuses for want of room is asked again. One thread. Non-goals: the files' format (batch_file.h).

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "serve/batch_file.h"
#include "serve/post_client.h"

namespace kvist::serve {

struct BatchProgress {
  uint64_t total = 0;     ///< Requests of this run.
  uint64_t answered = 0;  ///< With status 200.
  uint64_t failed = 0;    ///< With another, or without an answer; written too.
  uint64_t retries = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  double elapsed_s = 0;
};

struct BatchOptions {
  ServerUrl url;
  std::shared_ptr<const TlsTrust> trust;  ///< Of https.
  std::string api_key;
  uint32_t concurrency = 16;  ///< Requests under way.
  /// Called a few times a second and at the end; false ends the run.
  std::function<bool(const BatchProgress&)> progress;
};

/// Errors, all of which leave an output that a later run goes on from: Cancelled by `progress`; Unavailable when the
/// server cannot be reached (any more); those of writing.
absl::Status RunBatch(std::vector<BatchRequest> requests, BatchOutput& output, const BatchOptions& options);

}  // namespace kvist::serve
