#pragma once

/// @file
/// Copies from cold memory that end together with reads from the drive: whoever waits for both has nothing from being
/// done with one early, and others need the memory's bandwidth meanwhile. Source: A5 (SARIA), "Coordinated Paced
/// Transfer Engine": R = min(B_memory, N_memory / N_drive * B_drive * (1 + eps)). Pure; time comes in.

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace kvist::kv {

/// An allowance that grows with time up to a burst.
class TokenBucket {
 public:
  TokenBucket(double bytes_per_s, double burst_bytes, TimeNs now)
      : bytes_per_s_(bytes_per_s), burst_bytes_(burst_bytes), tokens_(burst_bytes), at_(now) {}

  void SetRate(double bytes_per_s, TimeNs now) {
    Advance(now);
    bytes_per_s_ = bytes_per_s;
  }
  double rate() const { return bytes_per_s_; }
  double Available(TimeNs now) {
    Advance(now);
    return tokens_;
  }
  /// May go below 0: then there is nothing until that is made up for.
  void Take(double bytes) { tokens_ -= bytes; }

 private:
  void Advance(TimeNs now) {
    tokens_ = std::min(tokens_ + bytes_per_s_ * Seconds(now - at_), burst_bytes_);
    at_ = now;
  }
  double bytes_per_s_, burst_bytes_, tokens_;
  TimeNs at_;
};

struct PacerOptions {
  double memory_bytes_per_s = 0;  ///< Measured.
  double drive_bytes_per_s = 0;   ///< Measured; corrected by what the transfer sees itself.
  double margin = 0.05;           ///< eps: copies are that much ahead.
  uint64_t burst_bytes = uint64_t{1} << 20;
};

/// The copies of one restore.
class TransferPacer {
 public:
  TransferPacer(const PacerOptions& options, uint64_t memory_bytes, uint64_t drive_bytes, TimeNs now);

  /// The drive has delivered so many bytes by now, all together.
  void DriveDone(uint64_t bytes, TimeNs now);
  /// Bytes that may be copied now; whole blocks may be taken when this is more than 0.
  uint64_t MayCopy(TimeNs now);
  void Copied(uint64_t bytes);

  double rate() const { return bucket_.rate(); }

 private:
  double Rate() const;

  const PacerOptions options_;
  const double memory_bytes_, drive_bytes_;
  const TimeNs start_;
  double drive_rate_;
  double drive_done_ = 0, copied_ = 0;
  TokenBucket bucket_;
};

}  // namespace kvist::kv
