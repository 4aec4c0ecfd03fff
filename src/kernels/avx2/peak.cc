#include <immintrin.h>

#include "kernels/avx2/avx2.h"

namespace kvist::kernels::avx2 {
namespace {

#include "kernels/avx2/native.inc"
// native.inc first.
#include "kernels/generic/peak.inc"

}  // namespace

uint64_t PeakF32(uint64_t rounds) {
  return RunPeakF32(rounds);
}

uint64_t PeakInt8(uint64_t rounds) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i a = _mm256_set1_epi8(3), sums[kChains];
  for (auto& sum : sums) sum = _mm256_setzero_si256();
  for (uint64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int repeat = 0; repeat < 16; ++repeat) {
#pragma GCC unroll 10
      for (int j = 0; j < kChains; ++j) {
        KVIST_OPAQUE(a);
        sums[j] = _mm256_add_epi32(sums[j], _mm256_madd_epi16(_mm256_maddubs_epi16(a, a), ones));
        KVIST_OPAQUE(sums[j]);
      }
    }
  }
  return rounds * 16 * kChains * 32;
}

}  // namespace kvist::kernels::avx2
