#pragma once

/// @file
/// How fast a tier gives blocks back, learnt from what it has given back. Pure.

#include <cstdint>

#include "base/clock.h"

namespace kvist::kv {

class TransferRate {
 public:
  /// @param bytes_per_s  measured, or a guess
  explicit TransferRate(double bytes_per_s) : bytes_per_s_(bytes_per_s) {}

  /// A transfer that began.
  struct Sample {
    uint64_t bytes = 0;
    TimeNs since{0};
    bool alone = false;  ///< Nothing else was under way.
  };
  /// It is done, and was not joined by others.
  void Learn(const Sample& sample, TimeNs now) {
    if (!sample.alone || sample.bytes < kBytesMin || now <= sample.since) return;
    const double rate = static_cast<double>(sample.bytes) / Seconds(now - sample.since);
    bytes_per_s_ += (rate - bytes_per_s_) * kRecent;
  }
  double bytes_per_s() const { return bytes_per_s_; }

 private:
  /// Less says little about the rate.
  static constexpr uint64_t kBytesMin = uint64_t{4} << 20;
  /// Weight of one more.
  static constexpr double kRecent = 0.25;

  double bytes_per_s_;
};

}  // namespace kvist::kv
