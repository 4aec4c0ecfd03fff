#pragma once

/// @file
/// What this machine can do at most: how fast memory is read, how fast an instruction set multiplies. Measured with the
/// threads that the model uses. The yardstick of speed.h. Threads: the caller's pool, one caller.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/peak.h"
#include "platform/anonymous_memory.h"
#include "platform/thread_pool.h"

namespace kvist::lab {

/// A buffer that all threads read at once, each its own part, again and again.
class ReadBandwidth {
 public:
  /// @param bytes  of the buffer; less is taken where memory is short (never more than half of what is free). As large
  /// as the model, so that it is served from the same level of the memory hierarchy.
  static absl::StatusOr<ReadBandwidth> Create(ThreadPool& pool, uint64_t bytes);

  /// Reads the buffer `rounds` times more and keeps the figures; each round reads at least 64 MiB.
  void Measure(uint32_t rounds);

  uint64_t buffer_bytes() const { return bytes_; }
  double MedianBytesPerS() const;

 private:
  ReadBandwidth(ThreadPool& pool, AnonymousMemory memory, uint64_t bytes);

  ThreadPool& pool_;
  AnonymousMemory memory_;
  uint64_t bytes_;
  std::vector<double> bytes_per_s_;
};

/// Multiply-adds per second of all threads together, on registers. 0 for the reference.
double PeakMultiplyAddsPerS(ThreadPool& pool, kernels::Isa isa, kernels::PeakKind kind);

}  // namespace kvist::lab
