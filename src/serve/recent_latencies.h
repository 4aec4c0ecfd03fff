#pragma once

/// @file
/// How long the last generations took, for percentiles over the last minutes. Bounded: when more than `records_max` end
/// within the window, the latest count. Threads: any. Non-goals: what is counted for ever (serve_metrics.h).

#include <cstdint>
#include <mutex>
#include <vector>

#include <boost/json.hpp>

#include "base/clock.h"

namespace kvist::serve {

/// Of one generation; negative = did not happen.
struct Latencies {
  TimeNs finished_at{0};
  double ttft_s = -1;  ///< Request read to first token.
  double tpot_s = -1;  ///< Mean of the tokens after the first.
  double e2e_s = -1;   ///< Request read to last token.
};

/// {"count", "p50", "p90", "p99"} in milliseconds; percentiles of nothing are null.
boost::json::object PercentilesMs(std::vector<double> seconds);

class RecentLatencies {
 public:
  explicit RecentLatencies(size_t records_max = 4096) : records_max_(records_max) {}

  void Add(const Latencies& latencies);

  /// {"window_s", "ttft_ms", "tpot_ms", "e2e_ms"} of those that finished at most `window_s` before `now`.
  boost::json::object Summary(TimeNs now, double window_s) const;

 private:
  const size_t records_max_;
  mutable std::mutex mutex_;  ///< Guards the rest.
  std::vector<Latencies> ring_;
  size_t next_ = 0;  ///< Where the next one goes once the ring is full.
};

}  // namespace kvist::serve
