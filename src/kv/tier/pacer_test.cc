#include "kv/tier/pacer.h"

#include <gtest/gtest.h>

namespace kvist::kv {
namespace {

struct Outcome {
  double drive_s = 0, memory_s = 0;
  double ahead_max = 0;  ///< Share of copies beyond the share of reads.
};

/// A restore in steps of 0.1 ms from a drive whose speed is not the one that was measured.
Outcome Restore(double memory_bytes, double drive_bytes, double drive_speed, double step_s = 1e-4) {
  const PacerOptions options{.memory_bytes_per_s = 10e9, .drive_bytes_per_s = 1e9, .burst_bytes = 1u << 20};
  const auto at = [](double s) { return TimeNs{static_cast<int64_t>(s * 1e9)}; };
  TransferPacer pacer(options, static_cast<uint64_t>(memory_bytes), static_cast<uint64_t>(drive_bytes), at(0));
  Outcome outcome;
  double copied = 0, read = 0;
  for (double now = 0; copied < memory_bytes || read < drive_bytes; now += step_s) {
    if (read < drive_bytes) {
      read = std::min(read + drive_speed * step_s, drive_bytes);
      pacer.DriveDone(static_cast<uint64_t>(read), at(now));
      outcome.drive_s = now;
    }
    if (copied < memory_bytes) {
      const auto may = static_cast<double>(pacer.MayCopy(at(now)));
      pacer.Copied(static_cast<uint64_t>(may));
      copied += may;
      outcome.memory_s = now;
      outcome.ahead_max = std::max(outcome.ahead_max, copied / memory_bytes - read / std::max(drive_bytes, 1.0));
    }
  }
  return outcome;
}

TEST(TransferPacer, CopiesEndWithTheReads) {
  for (const double speed : {0.3e9, 1e9, 2e9}) {
    const Outcome outcome = Restore(400e6, 100e6, speed);
    EXPECT_LE(outcome.memory_s, outcome.drive_s * 1.01) << speed;
    EXPECT_GE(outcome.memory_s, outcome.drive_s * 0.85) << speed;
    EXPECT_LT(outcome.ahead_max, 0.2);
  }
}

TEST(TransferPacer, MemoryThatIsTheSlowerOneIsNotHeldBack) {
  const Outcome outcome = Restore(1e9, 1e6, 1e9);
  EXPECT_NEAR(outcome.memory_s, 0.1, 0.01);
}

TEST(TransferPacer, WithoutTheDriveThereIsNothingToWaitFor) {
  const Outcome outcome = Restore(1e9, 0, 1e9);
  EXPECT_NEAR(outcome.memory_s, 0.1, 0.01);
}

}  // namespace
}  // namespace kvist::kv
