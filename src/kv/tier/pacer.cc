#include "kv/tier/pacer.h"

namespace kvist::kv {

TransferPacer::TransferPacer(const PacerOptions& options, uint64_t memory_bytes, uint64_t drive_bytes, TimeNs now)
    : options_(options),
      memory_bytes_(static_cast<double>(memory_bytes)),
      drive_bytes_(static_cast<double>(drive_bytes)),
      start_(now),
      drive_rate_(options.drive_bytes_per_s),
      bucket_(Rate(), static_cast<double>(options.burst_bytes), now) {}

double TransferPacer::Rate() const {
  const double drive_left = drive_bytes_ - drive_done_;
  if (drive_left <= 0) return options_.memory_bytes_per_s;
  // Of what is left, so that a drive that is slower or faster than it was measured is followed.
  const double memory_left = std::max(memory_bytes_ - copied_, 0.0);
  return std::min(options_.memory_bytes_per_s, memory_left / drive_left * drive_rate_ * (1 + options_.margin));
}

void TransferPacer::DriveDone(uint64_t bytes, TimeNs now) {
  drive_done_ = static_cast<double>(bytes);
  if (now > start_ && bytes > 0) drive_rate_ = drive_done_ / Seconds(now - start_);
  bucket_.SetRate(Rate(), now);
}

uint64_t TransferPacer::MayCopy(TimeNs now) {
  const double left = memory_bytes_ - copied_;
  return static_cast<uint64_t>(std::clamp(bucket_.Available(now), 0.0, std::max(left, 0.0)));
}

void TransferPacer::Copied(uint64_t bytes) {
  copied_ += static_cast<double>(bytes);
  bucket_.Take(static_cast<double>(bytes));
}

}  // namespace kvist::kv
