#pragma once

/// @file
/// What a load test saw, request by request, and the figures made of it. Pure; any thread. Non-goals: sending
/// (load_run.h), showing (load_report.h).
///
/// All times count from the instant a request was due, not from when it was sent: a client or a server that falls
/// behind an open loop does not get its delay forgiven (no coordinated omission).

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvist::lab {

enum class LoadOutcome : uint8_t {
  kAnswered,
  kRefused,      ///< 429 or 503: too much at once.
  kHttpError,    ///< Another status than 200.
  kUnreachable,  ///< No connection.
  kTimedOut,
  kCutOff,       ///< The answer ended early.
  kStreamError,  ///< An error event, or what is no answer, came in the stream.
  kInterrupted,  ///< By the user of the load test; in no figure but its count.
};
inline constexpr uint32_t kLoadOutcomes = 8;

/// "answered", "refused", ...
std::string_view LoadOutcomeName(LoadOutcome outcome);

struct LoadRecord {
  uint32_t conversation = 0, turn = 0;
  uint32_t tenant = 0;         ///< Index into the tenants of the run.
  double due_s = 0;            ///< When it was to be sent, since the run's start.
  double sent_s = 0;           ///< When it was.
  double end_s = 0;            ///< Last byte, or failure.
  std::vector<double> text_s;  ///< When text came, in order; several tokens may come at once.
  uint32_t prompt_tokens = 0, cached_tokens = 0;
  uint32_t output_tokens = 0;  ///< As the server counts; else the number of pieces of text.
  bool counted_by_server = false;
  LoadOutcome outcome = LoadOutcome::kAnswered;
  int status = 0;   ///< Of HTTP; 0 = none came.
  std::string why;  ///< When it was not answered.

  bool answered() const { return outcome == LoadOutcome::kAnswered; }
  double lag_s() const { return sent_s - due_s; }
  double e2e_s() const { return end_s - due_s; }
  /// Absent when no text came.
  std::optional<double> ttft_s() const;
  /// Time per output token after the first: (last text - first text) / (tokens - 1). Absent below two tokens.
  std::optional<double> tpot_s() const;
};

struct Distribution {
  size_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};

/// Percentiles are linear between neighbours. Zeros of nothing.
Distribution DistributionOf(std::vector<double> values);

/// (sum x)^2 / (n sum x^2): 1 = all equal, 1/n = one has everything. 1 when there is nothing to share.
/// Source: Jain, Chiu, Hawe, "A Quantitative Measure of Fairness", DEC TR-301, 1984.
double JainIndex(std::span<const double> values);

/// Smallest through largest; 1 when there is nothing to share.
double MinOverMax(std::span<const double> values);

/// Bounds of a good answer; 0 = none.
struct LoadGoal {
  double ttft_s = 0, tpot_s = 0;
  bool Met(const LoadRecord& record) const;
};

/// Of a run, or of one tenant in it.
struct LoadFigures {
  uint64_t requests = 0;  ///< Without the interrupted ones.
  uint64_t by_outcome[kLoadOutcomes] = {};
  Distribution ttft_s, tpot_s, itl_s, e2e_s, lag_s;  ///< Of answered requests; lag_s of all.
  uint64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  double output_tokens_per_s = 0, requests_per_s = 0;
  uint64_t good = 0;  ///< Answered within the goal.
  double goodput_per_s = 0;
  bool counted_by_server = true;  ///< All answers brought a count of tokens.

  uint64_t answered() const { return by_outcome[0]; }
  double good_share() const { return requests == 0 ? 0 : static_cast<double>(good) / static_cast<double>(requests); }
};

struct LoadSummary {
  double duration_s = 0;
  uint32_t running_max = 0;  ///< Requests under way at once.
  LoadFigures all;
  std::vector<LoadFigures> tenants;
  double jain_tokens = 1, min_max_tokens = 1;  ///< Of the tenants' output tokens per second.
  double jain_good = 1, min_max_good = 1;      ///< Of the shares of their requests that were good.
};

/// @param duration_s  of the run, for rates
LoadSummary SummariseLoad(std::span<const LoadRecord> records, uint32_t tenants_count, const LoadGoal& goal,
                          double duration_s);

}  // namespace kvist::lab
