#include "serve/recent_latencies.h"

#include <algorithm>
#include <cmath>

#include "base/percentile.h"

namespace kvist::serve {

namespace json = boost::json;

json::object PercentilesMs(std::vector<double> seconds) {
  const auto at = [&](double share) -> json::value {
    if (seconds.empty()) return nullptr;
    return std::round(Percentile(seconds, share) * 1e6) / 1e3;
  };
  return {{"count", seconds.size()}, {"p50", at(0.5)}, {"p90", at(0.9)}, {"p99", at(0.99)}};
}

void RecentLatencies::Add(const Latencies& latencies) {
  std::lock_guard lock(mutex_);
  if (ring_.size() < records_max_) {
    ring_.push_back(latencies);
    return;
  }
  ring_[next_] = latencies;
  next_ = (next_ + 1) % records_max_;
}

json::object RecentLatencies::Summary(TimeNs now, double window_s) const {
  std::vector<Latencies> records;
  {
    std::lock_guard lock(mutex_);
    records = ring_;
  }
  std::erase_if(records, [&](const Latencies& one) { return Seconds(now - one.finished_at) > window_s; });
  const auto percentiles = [&](double Latencies::*member) {
    std::vector<double> values;
    for (const Latencies& one : records) {
      if (one.*member >= 0) values.push_back(one.*member);
    }
    return PercentilesMs(std::move(values));
  };
  return {{"window_s", window_s},
          {"ttft_ms", percentiles(&Latencies::ttft_s)},
          {"tpot_ms", percentiles(&Latencies::tpot_s)},
          {"e2e_ms", percentiles(&Latencies::e2e_s)}};
}

}  // namespace kvist::serve
