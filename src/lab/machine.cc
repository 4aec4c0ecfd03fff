#include "lab/machine.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/check.h"
#include "base/status.h"

namespace kvist::lab {
namespace {

constexpr uint64_t kUnitBytes = 512;  ///< Of one turn of the loops below.
constexpr uint64_t kRoundBytesMin = uint64_t{64} << 20;
constexpr uint64_t kBufferBytesMin = uint64_t{1} << 20;

/// Keeps the loads from being optimised away.
std::atomic<uint64_t> sink{0};

/// Loads of the vector's width; the compiler makes one instruction of each.
template <class Vector>
__attribute__((always_inline)) inline uint64_t ReadAll(const std::byte* data, uint64_t bytes) {
  constexpr int kLoads = kUnitBytes / sizeof(Vector);
  Vector sums[4] = {};
  for (uint64_t at = 0; at < bytes; at += kUnitBytes) {
    const auto* from = reinterpret_cast<const Vector*>(data + at);
    for (int i = 0; i < kLoads; ++i) sums[i % 4] ^= from[i];
  }
  const Vector all = sums[0] | sums[1] | sums[2] | sums[3];
  uint64_t word = 0;
  for (size_t i = 0; i < sizeof(Vector) / sizeof(uint64_t); ++i) word |= all[i];
  return word;
}

using Vector512 __attribute__((vector_size(64), may_alias)) = uint64_t;
using Vector256 __attribute__((vector_size(32), may_alias)) = uint64_t;

__attribute__((target("avx512f"))) uint64_t ReadAvx512(const std::byte* data, uint64_t bytes) {
  return ReadAll<Vector512>(data, bytes);
}

uint64_t ReadAvx2(const std::byte* data, uint64_t bytes) {
  return ReadAll<Vector256>(data, bytes);
}

struct Part {
  uint64_t begin, bytes;
};

Part PartOf(uint64_t bytes, uint32_t worker, uint32_t threads) {
  const auto [begin, end] = ShareOf(static_cast<uint32_t>(bytes / kUnitBytes), worker, threads);
  return {begin * kUnitBytes, (end - begin) * kUnitBytes};
}

}  // namespace

ReadBandwidth::ReadBandwidth(ThreadPool& pool, AnonymousMemory memory, uint64_t bytes)
    : pool_(pool), memory_(std::move(memory)), bytes_(bytes) {
  pool_.Run([&](uint32_t worker) {  // First touch by the thread that will read.
    const Part part = PartOf(bytes_, worker, pool_.threads());
    std::fill_n(memory_.data() + part.begin, part.bytes, static_cast<std::byte>(worker + 1));
  });
}

absl::StatusOr<ReadBandwidth> ReadBandwidth::Create(ThreadPool& pool, uint64_t bytes) {
  if (const uint64_t free = AvailableMemoryBytes(); free > 0) bytes = std::min(bytes, free / 2);
  bytes = std::max(bytes, kBufferBytesMin) / kUnitBytes * kUnitBytes;
  KVIST_ASSIGN_OR_RETURN(AnonymousMemory memory, AnonymousMemory::Map(bytes));
  return ReadBandwidth(pool, std::move(memory), bytes);
}

void ReadBandwidth::Measure(uint32_t rounds) {
  static const bool wide = __builtin_cpu_supports("avx512f");
  const uint64_t passes = std::max<uint64_t>(1, (kRoundBytesMin + bytes_ - 1) / bytes_);
  for (uint32_t round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    pool_.Run([&](uint32_t worker) {
      const Part part = PartOf(bytes_, worker, pool_.threads());
      uint64_t seen = 0;
      for (uint64_t pass = 0; pass < passes; ++pass)
        seen |= wide ? ReadAvx512(memory_.data() + part.begin, part.bytes)
                     : ReadAvx2(memory_.data() + part.begin, part.bytes);
      sink.fetch_xor(seen, std::memory_order_relaxed);
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    bytes_per_s_.push_back(static_cast<double>(bytes_ * passes) / seconds);
  }
}

double ReadBandwidth::MedianBytesPerS() const {
  KVIST_CHECK(!bytes_per_s_.empty());
  std::vector<double> sorted = bytes_per_s_;
  std::ranges::sort(sorted);
  return sorted[sorted.size() / 2];
}

double PeakMultiplyAddsPerS(ThreadPool& pool, kernels::Isa isa, kernels::PeakKind kind) {
  std::vector<double> operations(pool.threads());
  pool.Run([&](uint32_t worker) { operations[worker] = kernels::MeasurePeakOpsPerS(isa, kind); });
  double sum = 0;
  for (double one : operations) sum += one;
  return sum / 2;
}

}  // namespace kvist::lab
