#pragma once

/// @file
/// Blocks of the quantised types as they lie in a GGUF file (ggml's layouts; a file format, never changed). Everything
/// is little endian; `d` and `m` fields are IEEE binary16 bits; the structs have no alignment need and are read in
/// place. In the formulas w[i] is element i of the block, q[i] its stored integer. Plain data. Non-goals: arithmetic.

#include <bit>
#include <cstdint>

#include "tensor/code_values.h"

namespace kvist {

inline constexpr uint32_t kBlockColumns = 32;   ///< Elements of a small block.
inline constexpr uint32_t kSuperColumns = 256;  ///< Elements of a K-type super-block.
inline constexpr uint32_t kKScaleBytes = 12;    ///< Eight 6-bit scales and eight 6-bit mins, or sixteen scales.

#pragma pack(push, 1)

/// w[i] = d * q[i].
struct BlockQ8_0 {
  uint16_t d;
  int8_t q[32];
};

/// w[i] = d * (q[i] - 8). Low nibbles hold elements 0..15, high nibbles 16..31.
struct BlockQ4_0 {
  uint16_t d;
  uint8_t q[16];
};

/// w[i] = d * q[i] + m. Nibbles as in Q4_0.
struct BlockQ4_1 {
  uint16_t d, m;
  uint8_t q[16];
};

/// w[i] = d * (q[i] - 16). Nibbles as in Q4_0; bit i of `high` is the fifth bit of element i.
struct BlockQ5_0 {
  uint16_t d;
  uint8_t high[4];
  uint8_t q[16];
};

/// w[i] = d * q[i] + m. Bits as in Q5_0.
struct BlockQ5_1 {
  uint16_t d, m;
  uint8_t high[4];
  uint8_t q[16];
};

/// w[i] = d * scale * q[i] - dmin * min with the scale in the low nibble of scales[i / 16] and the min in the high one.
/// In half h (elements 128 h ..) element 32 j + l lies in bits 2 j of `q[32 h + l]`.
struct BlockQ2_K {
  uint8_t scales[16];
  uint8_t q[64];
  uint16_t d, dmin;
};

/// w[i] = d * scale[i / 16] * (q[i] - 4); the signed scales are read by Q3Scale. The low two bits of an element as in
/// Q2_K; bit j of `high[l]` is the third bit of element 32 j + l.
struct BlockQ3_K {
  uint8_t high[32];
  uint8_t low[64];
  uint8_t scales[kKScaleBytes];
  uint16_t d;
};

/// w[i] = d * scale[i / 32] * q[i] - dmin * min[i / 32]; the 6-bit scales and mins are read by KScaleMin. Bytes
/// 32 c .. 32 c + 31 of `q` hold elements 64 c .. 64 c + 31 in their low nibbles and the next 32 in their high ones.
struct BlockQ4_K {
  uint16_t d, dmin;
  uint8_t scales[kKScaleBytes];
  uint8_t q[128];
};

/// As Q4_K; bit j of `high[l]` is the fifth bit of element 32 j + l.
struct BlockQ5_K {
  uint16_t d, dmin;
  uint8_t scales[kKScaleBytes];
  uint8_t high[32];
  uint8_t q[128];
};

/// w[i] = d * scales[i / 16] * (q[i] - 32). In half h (elements 128 h ..) element 32 j + l has its low four bits in
/// `low[64 h + 32 (j & 1) + l]` (low nibble for j < 2, high nibble else) and its upper two in bits 2 j of `high[32 h +
/// l]`.
struct BlockQ6_K {
  uint8_t low[128];
  uint8_t high[64];
  int8_t scales[16];
  uint16_t d;
};

/// w[i] = d * kIQ4Values[q[i]]. Nibbles as in Q4_0.
struct BlockIQ4_NL {
  uint16_t d;
  uint8_t q[16];
};

/// w[i] = d * scale[i / 32] * kIQ4Values[q[i]]; the signed scales are read by IQ4Scale. Every 16 bytes of `q` hold 32
/// elements as in Q4_0.
struct BlockIQ4_XS {
  uint16_t d;
  uint16_t scales_high;
  uint8_t scales_low[4];
  uint8_t q[128];
};

/// w[i] = 2^(e - 128) * kMXFP4Values[q[i]], for e = 0 and 1 a subnormal and for e = 255 a number like any other: the
/// E8M0 of the MX specification, one less because the values are doubled, but that its NaN is not one. Nibbles as in
/// Q4_0.
struct BlockMXFP4 {
  uint8_t e;
  uint8_t q[16];
};

#pragma pack(pop)

static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockIQ4_NL) == 18 && sizeof(BlockIQ4_XS) == 136 && sizeof(BlockMXFP4) == 17);
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110);
static_assert(sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210);

/// The 6-bit scale and min of one 32-element sub-block.
struct ScaleMin {
  uint8_t scale, min;
};

/// Sub-block `j` (0..7) of a Q4_K or Q5_K scale field.
constexpr ScaleMin KScaleMin(const uint8_t scales[kKScaleBytes], uint32_t j) {
  if (j < 4) return {static_cast<uint8_t>(scales[j] & 63), static_cast<uint8_t>(scales[j + 4] & 63)};
  return {static_cast<uint8_t>((scales[j + 4] & 15) | (scales[j - 4] >> 6 << 4)),
          static_cast<uint8_t>((scales[j + 4] >> 4) | (scales[j] >> 6 << 4))};
}

/// Scale of the 16 elements `j` (0..15), -32..31: four low bits in nibbles, two upper ones in the last four bytes.
constexpr int Q3Scale(const BlockQ3_K& block, uint32_t j) {
  int low = block.scales[j % 8] >> (j / 8 * 4) & 15, high = block.scales[8 + j % 4] >> (j / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

/// Scale of the 32 elements `j` (0..7), -32..31: four low bits in nibbles, two upper ones in pairs of bits.
constexpr int IQ4Scale(const BlockIQ4_XS& block, uint32_t j) {
  int low = block.scales_low[j / 2] >> (j % 2 * 4) & 15, high = block.scales_high >> (2 * j) & 3;
  return (low | high << 4) - 32;
}

/// 2^(e - 128) as f32, exactly.
constexpr float MXFP4Scale(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? uint32_t{0x00200000} << e : static_cast<uint32_t>(e - 1) << 23);
}

}  // namespace kvist
