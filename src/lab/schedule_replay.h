#pragma once

/// @file
/// The engine under a policy and a load, in virtual time: what each request waited for, on a machine that is nothing
/// but prices. The same inputs give the same figures. Threads: none shared. Non-goals: HTTP, real machines
/// (bench-serve).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "lab/virtual_engine.h"
#include "modelfile/tokenizer.h"

namespace kvist::lab {

/// Where requests come from. Lengths are drawn between bounds, evenly in their logarithm.
struct ScheduleSource {
  std::string name = "requests";
  uint32_t count = 0;
  double rate = 0;       ///< Requests a second, at random (Poisson); 0 = all at the start.
  bool regular = false;  ///< At equal distances in place of at random.
  double start_s = 0;
  uint32_t prompt_min = 64, prompt_max = 64, output_min = 64, output_max = 64;
  bool from_log = false;       ///< Lengths and predictions of the log, one after the other, in place of drawn ones.
  uint32_t prefix_tokens = 0;  ///< That all its prompts begin with.
  uint32_t tenant = 0;
  uint8_t priority = 128;
};

/// Lengths of a recorded request.
struct LoggedLengths {
  uint32_t prompt_tokens = 1, output_tokens = 1;
  uint32_t output_tokens_predicted = 0;  ///< 0 = unknown.
};

struct ScheduleOptions {
  VirtualEngineOptions world;
  bool know_lengths = false;  ///< Requests come with their true output lengths as predictions.
  uint64_t seed = 1;
};

/// Times of one request; -1 = did not happen.
struct RequestTimes {
  uint32_t source = 0;
  int64_t arrived_ns = 0, first_token_ns = -1, finished_ns = -1;
  uint32_t prompt_tokens = 0, output_tokens = 0;
};

struct ScheduleResult {
  std::vector<RequestTimes> requests;           ///< In order of arrival.
  std::vector<std::vector<double>> token_gaps;  ///< [source] times between two tokens of a request, ns.
  int64_t duration_ns = 0;
  engine::EngineStats stats;
};

/// Errors: InvalidArgument for an unknown policy, or a source that takes its lengths from an empty log.
absl::StatusOr<ScheduleResult> ReplaySchedule(const Tokenizer& tokenizer, const std::vector<ScheduleSource>& sources,
                                              const std::vector<LoggedLengths>& log, const ScheduleOptions& options);

}  // namespace kvist::lab
