#include "kernels/peak.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "kernels/amx/amx.h"
#include "kernels/avx2/avx2.h"
#include "kernels/avx512/avx512.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"

namespace kvist::kernels {
namespace {

/// Runs `rounds` rounds of a loop and returns its multiply-adds.
using PeakLoop = uint64_t (*)(uint64_t rounds);

PeakLoop LoopOf(Isa isa, PeakKind kind) {
  switch (isa) {
    case Isa::kReference:
      return nullptr;
    case Isa::kAvx2:
      return kind == PeakKind::kInt8 ? avx2::PeakInt8 : avx2::PeakF32;
    case Isa::kAvx512:
      return kind == PeakKind::kInt8 ? avx512::PeakInt8 : avx512::PeakF32;
    case Isa::kAmx:
      if (kind == PeakKind::kF32) return avx512::PeakF32;
      return kind == PeakKind::kInt8 ? amx::PeakInt8 : amx::PeakBf16;
  }
  CheckFailed(__FILE__, __LINE__, "known instruction set");
}

}  // namespace

PeakKind PeakKindOf(DType dtype) {
  if (UsesQuantizedActivations(dtype)) return PeakKind::kInt8;
  return dtype == DType::kF32 ? PeakKind::kF32 : PeakKind::kBf16;
}

double MeasurePeakOpsPerS(Isa isa, PeakKind kind) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRuns = 20;
  constexpr uint64_t kRounds = 5000;  // Half a millisecond: shorter than a time slice.
  KernelsFor(isa);                    // Checks that the machine has it.
  PeakLoop loop = LoopOf(isa, kind);
  if (loop == nullptr) return 0;
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    Clock::time_point start = Clock::now();
    double operations = 2.0 * static_cast<double>(loop(kRounds));
    best = std::max(best, operations / std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

}  // namespace kvist::kernels
