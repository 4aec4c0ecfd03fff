#include <immintrin.h>

#include "kernels/avx512/avx512.h"
#include "kernels/kernel_table.h"
#include "kernels/packed_layout.h"

namespace kvist::kernels::avx512 {
namespace {

#include "kernels/avx512/native.inc"

constexpr uint32_t kFloatTokens = 4;
constexpr uint32_t kQuantizedTokens = 8;
constexpr uint32_t kCacheBytes = 1 << 20;

#include "kernels/generic/matmul_float.inc"

struct QuantizedTask;

#include "kernels/generic/codes.inc"
// blocks.inc uses codes.inc.
#include "kernels/avx512/blocks.inc"

KVIST_INLINE __m512i Quad(const int8_t* q) {
  int32_t bits;
  __builtin_memcpy(&bits, q, 4);
  return _mm512_set1_epi32(bits);
}

/// Adds the products of four int vectors, 16 columns.
KVIST_INLINE __m512i DotFour(const __m512i* w, const int8_t* q, __m512i sum) {
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) sum = _mm512_dpbusd_epi32(sum, w[j], Quad(q + 4 * j));
  return sum;
}

/// The exact integer sum (u - offset) * q as floats: every number here is an integer below 2^24.
template <uint32_t offset>
KVIST_INLINE __m512 WithoutOffset(__m512i sum, float activation_sum) {
  __m512 f = _mm512_cvtepi32_ps(sum);
  if constexpr (offset == 0) return f;
  return _mm512_fnmadd_ps(Set(static_cast<float>(offset)), Set(activation_sum), f);
}

/// The exact integer sum of one block as floats.
template <DType dtype>
KVIST_INLINE __m512 BlockSum(const __m512i w[8], const int8_t* q, const ActivationMeta& meta, const BlockScales& s) {
  constexpr uint32_t kOffset = PackedUnit<dtype>::kOffset;
  __m512i first = DotFour(w, q, _mm512_setzero_si512());
  if constexpr (PackedUnit<dtype>::kHasSubScales) {
    __m512i last = DotFour(w + 4, q + 16, _mm512_setzero_si512());
    // Adding +0 keeps a zero positive, as an integer's is.
    __m512 sum = Fma(s.first, WithoutOffset<kOffset>(first, meta.sum_first), Set(0.0f));
    return Fma(s.last, WithoutOffset<kOffset>(last, meta.sum - meta.sum_first), sum);
  } else {
    return WithoutOffset<kOffset>(DotFour(w + 4, q + 16, first), meta.sum);
  }
}

template <DType dtype, uint32_t tokens>
void QuantizedTile(const QuantizedTask& task, const uint8_t* group, uint32_t first);

#include "kernels/generic/matmul_quantized.inc"

template <DType dtype, uint32_t tokens>
void QuantizedTile(const QuantizedTask& task, const uint8_t* group, uint32_t first) {
  using Unit = PackedUnit<dtype>;
  const std::byte* x = task.activations + first * task.activation_stride;
  const size_t stride = task.activation_stride, meta_offset = MetaOffset(task.cols);
  Native acc[tokens];
#pragma GCC unroll 8
  for (uint32_t t = 0; t < tokens; ++t) acc[t] = Set(0.0f);
  const uint32_t blocks = task.cols / 32;
  for (uint32_t begin = 0; begin < blocks; begin += Unit::kBlocks, group += Unit::kBytes) {
    for (uint32_t b = 0; b < Unit::kBlocks && begin + b < blocks; ++b) {
      AskAhead<Unit, tokens>(group, b);
      __m512i w[8];
      LoadInts<dtype>(group + Unit::kHeaderBytes + b * Unit::kBlockBytes, w);
      BlockScales s = LoadScales<dtype>(group, b);
#pragma GCC unroll 8
      for (uint32_t t = 0; t < tokens; ++t) {
        const auto* q = reinterpret_cast<const int8_t*>(x + t * stride) + (begin + b) * 32;
        const auto& meta = *(reinterpret_cast<const ActivationMeta*>(x + t * stride + meta_offset) + begin + b);
        acc[t] = Fma(Mul(s.d, Set(meta.scale)), BlockSum<dtype>(w, q, meta, s), acc[t]);
        if constexpr (Unit::kMins == 1) acc[t] = Fma(s.m[0], Set(meta.scaled_sum), acc[t]);
        if constexpr (Unit::kMins == 2) {
          acc[t] = Fma(s.m[0], Set(meta.scale * meta.sum_first), acc[t]);
          acc[t] = Fma(s.m[1], Set(meta.scale * (meta.sum - meta.sum_first)), acc[t]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (uint32_t t = 0; t < tokens; ++t) StoreFirst(task.y + (first + t) * task.y_stride, acc[t], task.rows_left);
}

/// One block of 32 activations.
KVIST_INLINE ActivationMeta QuantizeBlock(const float* x, int8_t* q) {
  __m512 a = Load(x), b = Load(x + 16);
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  // As integers, magnitudes order like floats, infinity and NaN on top.
  __m512i bits = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a), magnitude),
                                  _mm512_and_si512(_mm512_castps_si512(b), magnitude));
  int32_t amax_bits = _mm512_reduce_max_epi32(bits);
  float amax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(amax_bits)));
  if (amax_bits >= 0x7f800000 || amax < 0x1p-120f) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_setzero_si256());
    float scale = amax_bits >= 0x7f800000 ? __builtin_nanf("") : 0.0f;
    return {scale, scale, 0, 0};
  }
  Native inverse = Set(127.0f / amax);
  __m512i qa = _mm512_cvtps_epi32(Mul(a, inverse)), qb = _mm512_cvtps_epi32(Mul(b, inverse));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(qa));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm512_cvtepi32_epi8(qb));
  int32_t sum_first = _mm512_reduce_add_epi32(qa);
  int32_t sum_last = _mm512_reduce_add_epi32(qb);
  float scale = amax / 127.0f, sum = static_cast<float>(sum_first + sum_last);
  return {scale, scale * sum, sum, static_cast<float>(sum_first)};
}

}  // namespace

void QuantizeRows(const float* x, size_t x_stride, uint32_t tokens, uint32_t cols, std::byte* out) {
  const size_t meta_offset = MetaOffset(cols), used = meta_offset + cols / 32 * sizeof(ActivationMeta);
  const size_t row_bytes = (used + 63) / 64 * 64;
  for (uint32_t t = 0; t < tokens; ++t, out += row_bytes) {
    auto* meta = reinterpret_cast<ActivationMeta*>(out + meta_offset);
    for (uint32_t b = 0; b < cols / 32; ++b) {
      meta[b] = QuantizeBlock(x + t * x_stride + b * 32, reinterpret_cast<int8_t*>(out) + b * 32);
    }
    __builtin_memset(out + cols, 0, meta_offset - cols);
    __builtin_memset(out + used, 0, row_bytes - used);
  }
}

void MatMul(const PackedMatrix& w, const void* activations, size_t activation_stride, uint32_t tokens,
            uint32_t group_begin, uint32_t group_end, float* y, size_t y_stride) {
  RunMatMul(w, activations, activation_stride, tokens, group_begin, group_end, y, y_stride);
}

}  // namespace kvist::kernels::avx512
