#include <immintrin.h>

#include "kernels/avx512/avx512.h"

namespace kvist::kernels::avx512 {
namespace {

#include "kernels/avx512/native.inc"
// native.inc first.
#include "kernels/generic/peak.inc"

}  // namespace

uint64_t PeakF32(uint64_t rounds) {
  return RunPeakF32(rounds);
}

uint64_t PeakInt8(uint64_t rounds) {
  __m512i a = _mm512_set1_epi8(3), sums[kChains];
  for (auto& sum : sums) sum = _mm512_setzero_si512();
  KVIST_OPAQUE(a);
  for (uint64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int repeat = 0; repeat < 16; ++repeat) {
#pragma GCC unroll 10
      for (int j = 0; j < kChains; ++j) {
        sums[j] = _mm512_dpbusd_epi32(sums[j], a, a);
        KVIST_OPAQUE(sums[j]);
      }
    }
  }
  return rounds * 16 * kChains * 64;
}

}  // namespace kvist::kernels::avx512
