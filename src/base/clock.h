#pragma once

/// @file
/// Injected time. Nothing above base/ reads a system clock: the engine, its policies and its executors
/// ask a Clock, so that the same code runs in real and in virtual time.

#include <atomic>

#include "base/units.h"

namespace kvist {

constexpr TimeNs kTimeNever{INT64_MAX};

constexpr TimeNs operator+(TimeNs t, int64_t ns) {
  return TimeNs{t.value + ns};
}
/// Distance in nanoseconds.
constexpr int64_t operator-(TimeNs a, TimeNs b) {
  return a.value - b.value;
}
constexpr double Seconds(int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

/// Monotonic time. Threads: any.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimeNs Now() const = 0;
};

/// The machine's monotonic clock.
class RealClock final : public Clock {
 public:
  TimeNs Now() const override;
};

/// Time that moves only when told. Threads: any may read; one advances.
class VirtualClock final : public Clock {
 public:
  TimeNs Now() const override { return TimeNs{now_.load(std::memory_order_acquire)}; }

  /// REQUIRES: `t` is not before Now().
  void AdvanceTo(TimeNs t);

 private:
  std::atomic<int64_t> now_{0};
};

}  // namespace kvist
