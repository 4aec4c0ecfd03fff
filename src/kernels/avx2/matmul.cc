#include <immintrin.h>

#include "kernels/avx2/avx2.h"
#include "kernels/kernel_table.h"
#include "kernels/packed_layout.h"

namespace kvist::kernels::avx2 {
namespace {

#include "kernels/avx2/native.inc"

constexpr uint32_t kFloatTokens = 2;
constexpr uint32_t kQuantizedTokens = 4;
constexpr uint32_t kCacheBytes = 192 << 10;

#include "kernels/generic/codes.inc"
#include "kernels/generic/matmul_float.inc"

/// Integers that the multiplier of unsigned bytes by signed ones takes only as magnitude and sign: 16-bit sums of two
/// products of theirs would overflow.
template <DType dtype>
constexpr bool kSignedInts = PackedUnit<dtype>::kMax > 127;

/// Int vector `j` of a block as stored for half of the rows; `ints` points at that half of vector 0.
template <uint32_t bits>
KVIST_INLINE __m256i LoadStored(const uint8_t* ints, int j) {
  auto line = [ints](int i) __attribute__((always_inline)) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(ints + 64 * i));
  };
  if constexpr (bits == 8) return line(j);
  // Left, or right when negative.
  auto shift = [](__m256i v, int count) __attribute__((always_inline)) {
    return count >= 0 ? _mm256_slli_epi16(v, count) : _mm256_srli_epi16(v, -count);
  };
  if constexpr (bits < 4) {
    __m256i pair = _mm256_and_si256(shift(line(j / 4), -2 * (j % 4)), _mm256_set1_epi8(3));
    if constexpr (bits == 2) return pair;
    return _mm256_or_si256(pair, _mm256_and_si256(shift(line(2), 2 - j), _mm256_set1_epi8(4)));
  }
  const __m256i nibble = _mm256_set1_epi8(15);
  __m256i low = line(j % 4);
  if (j >= 4) low = _mm256_srli_epi16(low, 4);
  low = _mm256_and_si256(low, nibble);
  if constexpr (bits == 5) {
    low = _mm256_or_si256(low, _mm256_and_si256(shift(line(4), 4 - j), _mm256_set1_epi8(16)));
  }
  if constexpr (bits == 6) {
    low = _mm256_or_si256(low, _mm256_and_si256(shift(line(4 + j / 4), 4 - 2 * (j % 4)), _mm256_set1_epi8(48)));
  }
  return low;
}

/// The same as the products want it: u, or u - offset where kSignedInts.
template <DType dtype>
KVIST_INLINE __m256i LoadInts(const uint8_t* ints, int j) {
  using Unit = PackedUnit<dtype>;
  const __m256i stored = LoadStored<Unit::kBits>(ints, j);
  if constexpr (Unit::kCodes != UnitCodes::kNone) {
    constexpr uint32_t kAdded = kSignedInts<dtype> ? 0 : Unit::kOffset;
    const void* bytes = kCodeBytes<dtype, kAdded>.bytes;
    const __m128i table = _mm_load_si128(static_cast<const __m128i*>(bytes));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), stored);
  } else if constexpr (kSignedInts<dtype>) {
    static_assert(Unit::kOffset == 128);
    return _mm256_xor_si256(stored, _mm256_set1_epi8(-128));
  } else {
    return stored;
  }
}

KVIST_INLINE __m256i Quad(const int8_t* q) {
  int32_t bits;
  __builtin_memcpy(&bits, q, 4);
  return _mm256_set1_epi32(bits);
}

/// Sums of pairs u * q in 16 bits. They cannot overflow: signed weights go in as magnitudes (up to 128) with the sign
/// moved to the activation (at most 127), 2 * 128 * 127 = 32512.
template <bool is_signed>
KVIST_INLINE __m256i PairSums(__m256i w, __m256i magnitude, __m256i q) {
  if constexpr (is_signed) return _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(q, w));
  return _mm256_maddubs_epi16(w, q);
}

/// Int vectors whose pair sums may be added in 16 bits: 2 * max * 127 * n <= 32767, `max` being the largest u.
consteval int VectorsPerSum(uint32_t max) {
  int n = 8;
  while (n > 1 && 2 * max * 127 * static_cast<uint32_t>(n) > 32767) n /= 2;
  return n;
}

/// sums[t] = u * q over `count` int vectors from vector `begin`, times `factor`, a number for each row twice in 16
/// bits; x points at the block's activations of the first token.
template <DType dtype, uint32_t tokens, int begin, int count>
KVIST_INLINE void Dot(const uint8_t* ints, const int8_t* x, size_t stride, __m256i factor, __m256i* sums) {
  using Unit = PackedUnit<dtype>;
  constexpr int kFitting = VectorsPerSum(Unit::kMax), kStep = kFitting < count ? kFitting : count;
#pragma GCC unroll 8
  for (int first = begin; first < begin + count; first += kStep) {
    __m256i pairs[tokens];
#pragma GCC unroll 8
    for (int j = first; j < first + kStep; ++j) {
      __m256i w = LoadInts<dtype>(ints, j);
      __m256i magnitude = kSignedInts<dtype> ? _mm256_abs_epi8(w) : w;
#pragma GCC unroll 4
      for (uint32_t t = 0; t < tokens; ++t) {
        __m256i p = PairSums<kSignedInts<dtype>>(w, magnitude, Quad(x + t * stride + 4 * j));
        pairs[t] = j == first ? p : _mm256_add_epi16(pairs[t], p);
      }
    }
#pragma GCC unroll 4
    for (uint32_t t = 0; t < tokens; ++t) {
      __m256i sum = _mm256_madd_epi16(pairs[t], factor);
      sums[t] = first == begin ? sum : _mm256_add_epi32(sums[t], sum);
    }
  }
}

KVIST_INLINE __m256 Halves(const uint8_t* p) {
  return LoadHalf(reinterpret_cast<const uint16_t*>(p));
}

KVIST_INLINE __m256i WideBytes(const uint8_t* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
KVIST_INLINE __m256 Bytes(const uint8_t* p) {
  return _mm256_cvtepi32_ps(WideBytes(p));
}
KVIST_INLINE __m256 SignedBytes(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

/// Wide bytes without their lowest `count` bits.
KVIST_INLINE __m256i UpperBits(const uint8_t* p, uint32_t count) {
  return _mm256_srli_epi32(WideBytes(p), static_cast<int>(count));
}

/// Signed scales of 6 bits from lanes whose lowest four and two bits they are.
KVIST_INLINE __m256i SixBitScale(__m256i low, __m256i high) {
  const __m256i upper = _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4);
  const __m256i scale = _mm256_or_si256(upper, _mm256_and_si256(low, _mm256_set1_epi32(15)));
  return _mm256_sub_epi32(scale, _mm256_set1_epi32(32));
}

/// 2^(e - 128): the exponent field is e - 1 and, for the subnormals of e = 0 and 1, the larger (e + 1) * 2^21 the bits.
KVIST_INLINE __m256 PowersOf(const uint8_t* p) {
  const __m256i e = WideBytes(p), one = _mm256_set1_epi32(1);
  return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_slli_epi32(_mm256_sub_epi32(e, one), 23),
                                              _mm256_slli_epi32(_mm256_add_epi32(e, one), 21)));
}

/// Sub-scales that the 16-bit sums of u can be multiplied by before the offset is taken off: the sum of a block stays
/// exact as a float.
template <DType dtype>
constexpr bool kScaledSums =
    PackedUnit<dtype>::kHasSubScales && PackedUnit<dtype>::kSubScaleMax * PackedUnit<dtype>::kMax * 127 * 32 < 1 << 24;

/// Scales of one block for 8 rows: d (times the block's scale), minus the mins, and the sub-scales of two halves; where
/// kScaledSums these as `factor` for Dot and, times the offset, as `first` and `last`.
struct BlockScales {
  __m256 d, m[2], first, last;
  __m256i factor[2];
};

/// Sub-scales of 8 rows for Dot.
KVIST_INLINE __m256i FactorOf(__m256i scales) {
  return _mm256_blend_epi16(scales, _mm256_slli_epi32(scales, 16), 0xaa);
}

/// @param half  0 for rows 0..7 of the group, 1 for the others.
template <DType dtype>
KVIST_INLINE BlockScales LoadScales(const uint8_t* unit, uint32_t b, uint32_t half) {
  using Unit = PackedUnit<dtype>;
  const uint8_t* halves = unit + 16 * half;
  const uint8_t* bytes = unit + 64 + 8 * half;
  BlockScales s{};
  if constexpr (Unit::kHeader == UnitHeader::kD) {
    s.d = Halves(halves + 32 * b);
  } else if constexpr (Unit::kHeader == UnitHeader::kDM) {
    s.d = Halves(halves);
    s.m[0] = Halves(halves + 32);
  } else if constexpr (Unit::kHeader == UnitHeader::kScaleMin) {
    s.d = Mul(Halves(halves), Bytes(bytes + 16 * b));
    s.m[0] = Sub(Set(-0.0f), Mul(Halves(halves + 32), Bytes(bytes + 128 + 16 * b)));
  } else if constexpr (Unit::kHeader == UnitHeader::kNibblePairs) {
    s.d = Halves(halves);
    const __m256 dmin = Sub(Set(-0.0f), Halves(halves + 32));
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256i pairs = WideBytes(bytes + 32 * b + 16 * h);
      s.m[h] = Mul(dmin, _mm256_cvtepi32_ps(_mm256_srli_epi32(pairs, 4)));
      s.factor[h] = FactorOf(_mm256_and_si256(pairs, _mm256_set1_epi32(15)));
    }
  } else if constexpr (Unit::kHeader == UnitHeader::kSixBitPairs) {
    s.d = Halves(halves);
    const __m256i low = WideBytes(bytes + 16 * b), high = UpperBits(bytes + 128 + b / 2 * 16, b % 2 * 4);
    const __m256i first = SixBitScale(low, high);
    const __m256i last = SixBitScale(_mm256_srli_epi32(low, 4), _mm256_srli_epi32(high, 2));
    const __m256 offset = Set(static_cast<float>(Unit::kOffset));
    s.factor[0] = FactorOf(first);
    s.factor[1] = FactorOf(last);
    s.first = Mul(_mm256_cvtepi32_ps(first), offset);
    s.last = Mul(_mm256_cvtepi32_ps(last), offset);
  } else if constexpr (Unit::kHeader == UnitHeader::kSixBitScales) {
    const __m256i low = UpperBits(bytes + b / 2 * 16, b % 2 * 4), high = UpperBits(bytes - 32 + b / 4 * 16, b % 4 * 2);
    s.d = Mul(Halves(halves), _mm256_cvtepi32_ps(SixBitScale(low, high)));
  } else if constexpr (Unit::kHeader == UnitHeader::kExponents) {
    s.d = PowersOf(unit + 16 * b + 8 * half);
  } else {
    static_assert(Unit::kHeader == UnitHeader::kSignedScales);
    s.d = Halves(halves);
    s.first = SignedBytes(bytes + 32 * b);
    s.last = SignedBytes(bytes + 32 * b + 16);
  }
  return s;
}

/// The exact integer sum (u - offset) * q as floats: every number here is an integer below 2^24. Signed weights are
/// without the offset already.
template <DType dtype>
KVIST_INLINE Native WithoutOffset(__m256i sum, float activation_sum) {
  constexpr uint32_t kOffset = kSignedInts<dtype> ? 0 : PackedUnit<dtype>::kOffset;
  Native f = _mm256_cvtepi32_ps(sum);
  if constexpr (kOffset == 0) return f;
  return _mm256_fnmadd_ps(Set(static_cast<float>(kOffset)), Set(activation_sum), f);
}

KVIST_INLINE const ActivationMeta& MetaAt(const ActivationMeta* first, size_t offset) {
  return *reinterpret_cast<const ActivationMeta*>(reinterpret_cast<const std::byte*>(first) + offset);
}

/// The exact integer sums of one block as floats, [tokens].
template <DType dtype, uint32_t tokens>
KVIST_INLINE void BlockSums(const uint8_t* ints, const int8_t* x, const ActivationMeta* meta, size_t stride,
                            const BlockScales& s, Native* out) {
  using Unit = PackedUnit<dtype>;
  __m256i sums[tokens];
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (kScaledSums<dtype>) {
    __m256i last[tokens];
    Dot<dtype, tokens, 0, 4>(ints, x, stride, s.factor[0], sums);
    Dot<dtype, tokens, 4, 4>(ints, x, stride, s.factor[1], last);
#pragma GCC unroll 4
    for (uint32_t t = 0; t < tokens; ++t) {
      const ActivationMeta& m = MetaAt(meta, t * stride);
      out[t] = _mm256_cvtepi32_ps(_mm256_add_epi32(sums[t], last[t]));
      if constexpr (Unit::kOffset > 0) {
        out[t] = _mm256_fnmadd_ps(s.first, Set(m.sum_first), out[t]);
        out[t] = _mm256_fnmadd_ps(s.last, Set(m.sum - m.sum_first), out[t]);
      }
    }
  } else if constexpr (Unit::kHasSubScales) {
    Dot<dtype, tokens, 0, 4>(ints, x, stride, ones, sums);
    // Adding +0 keeps a zero positive, as an integer's is.
#pragma GCC unroll 4
    for (uint32_t t = 0; t < tokens; ++t) {
      out[t] = Fma(s.first, WithoutOffset<dtype>(sums[t], MetaAt(meta, t * stride).sum_first), Set(0.0f));
    }
    Dot<dtype, tokens, 4, 4>(ints, x, stride, ones, sums);
#pragma GCC unroll 4
    for (uint32_t t = 0; t < tokens; ++t) {
      const ActivationMeta& m = MetaAt(meta, t * stride);
      out[t] = Fma(s.last, WithoutOffset<dtype>(sums[t], m.sum - m.sum_first), out[t]);
    }
  } else {
    Dot<dtype, tokens, 0, 8>(ints, x, stride, ones, sums);
#pragma GCC unroll 4
    for (uint32_t t = 0; t < tokens; ++t) out[t] = WithoutOffset<dtype>(sums[t], MetaAt(meta, t * stride).sum);
  }
}

struct QuantizedTask;

template <DType dtype, uint32_t tokens>
void QuantizedTile(const QuantizedTask& task, const uint8_t* group, uint32_t first);

#include "kernels/generic/matmul_quantized.inc"

/// `halves` halves of the group's rows from half `first_half`, over all blocks.
template <DType dtype, uint32_t tokens, uint32_t halves>
KVIST_INLINE void HalfTiles(const QuantizedTask& task, const uint8_t* group, uint32_t first, uint32_t first_half) {
  using Unit = PackedUnit<dtype>;
  const std::byte* x = task.activations + first * task.activation_stride;
  const size_t stride = task.activation_stride, meta_offset = MetaOffset(task.cols);
  Native acc[halves][tokens];
#pragma GCC unroll 4
  for (uint32_t t = 0; t < tokens; ++t) {
    for (uint32_t h = 0; h < halves; ++h) acc[h][t] = Set(0.0f);
  }
  const uint32_t blocks = task.cols / 32;
  for (uint32_t begin = 0; begin < blocks; begin += Unit::kBlocks, group += Unit::kBytes) {
    for (uint32_t b = 0; b < Unit::kBlocks && begin + b < blocks; ++b) {
      AskAhead<Unit, tokens>(group, b);
      const auto* q = reinterpret_cast<const int8_t*>(x) + (begin + b) * 32;
      const auto* meta = reinterpret_cast<const ActivationMeta*>(x + meta_offset) + begin + b;
#pragma GCC unroll 2
      for (uint32_t h = 0; h < halves; ++h) {
        BlockScales s = LoadScales<dtype>(group, b, first_half + h);
        Native sums[tokens];
        const uint8_t* ints = group + Unit::kHeaderBytes + b * Unit::kBlockBytes + 32 * (first_half + h);
        BlockSums<dtype, tokens>(ints, q, meta, stride, s, sums);
#pragma GCC unroll 4
        for (uint32_t t = 0; t < tokens; ++t) {
          const ActivationMeta& m = MetaAt(meta, t * stride);
          acc[h][t] = Fma(Mul(s.d, Set(m.scale)), sums[t], acc[h][t]);
          if constexpr (Unit::kMins == 1) acc[h][t] = Fma(s.m[0], Set(m.scaled_sum), acc[h][t]);
          if constexpr (Unit::kMins == 2) {
            acc[h][t] = Fma(s.m[0], Set(m.scale * m.sum_first), acc[h][t]);
            acc[h][t] = Fma(s.m[1], Set(m.scale * (m.sum - m.sum_first)), acc[h][t]);
          }
        }
      }
    }
  }
  for (uint32_t h = 0; h < halves; ++h) {
    uint32_t row = 8 * (first_half + h);
    if (row >= task.rows_left) break;
    uint32_t n = task.rows_left - row < 8 ? task.rows_left - row : 8;
#pragma GCC unroll 4
    for (uint32_t t = 0; t < tokens; ++t) StoreFirst(task.y + (first + t) * task.y_stride + row, acc[h][t], n);
  }
}

/// Many tokens keep their accumulators in registers only if the two halves of the rows take turns; few tokens read each
/// line of weights once.
template <DType dtype, uint32_t tokens>
void QuantizedTile(const QuantizedTask& task, const uint8_t* group, uint32_t first) {
  if constexpr (tokens > 2) {
    HalfTiles<dtype, tokens, 1>(task, group, first, 0);
    HalfTiles<dtype, tokens, 1>(task, group, first, 1);
  } else {
    HalfTiles<dtype, tokens, 2>(task, group, first, 0);
  }
}

KVIST_INLINE int32_t SumOf(__m256i v) {
  __m128i a = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  a = _mm_add_epi32(a, _mm_shuffle_epi32(a, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(a, _mm_shuffle_epi32(a, 0xb1)));
}

KVIST_INLINE int32_t MaxOf(__m256i v) {
  __m128i a = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(a, _mm_shuffle_epi32(a, 0xb1)));
}

/// One block of 32 activations.
KVIST_INLINE ActivationMeta QuantizeBlock(const float* x, int8_t* q) {
  Native v[4];
  __m256i bits = _mm256_setzero_si256();
  // As integers, magnitudes order like floats, infinity and NaN on top.
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    v[i] = Load(x + 8 * i);
    bits = _mm256_max_epi32(bits, _mm256_castps_si256(Abs(v[i])));
  }
  int32_t amax_bits = MaxOf(bits);
  float amax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(amax_bits)));
  if (amax_bits >= 0x7f800000 || amax < 0x1p-120f) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_setzero_si256());
    float scale = amax_bits >= 0x7f800000 ? __builtin_nanf("") : 0.0f;
    return {scale, scale, 0, 0};
  }
  Native inverse = Set(127.0f / amax);
  __m256i n[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) n[i] = _mm256_cvtps_epi32(Mul(v[i], inverse));
  int32_t sum_first = SumOf(_mm256_add_epi32(n[0], n[1]));
  int32_t sum_last = SumOf(_mm256_add_epi32(n[2], n[3]));
  // Packing works inside 128-bit halves; the permutation puts groups of four back in order.
  __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
  bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), bytes);
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

}  // namespace kvist::kernels::avx2
