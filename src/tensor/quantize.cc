#include "tensor/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/half.h"
#include "tensor/quant_blocks.h"

namespace kvist {
namespace {

constexpr float kF16Max = 65504.0f;

float Finite(float value) {
  return std::isfinite(value) ? value : 0.0f;
}

/// A scale as it will be read back; clamped, so that a stored scale is always finite.
uint16_t StoreScale(float scale) {
  return F32ToF16(std::clamp(scale, -kF16Max, kF16Max));
}

/// round(value / scale) within [low, high]; 0 for a zero scale.
int Level(float value, float scale, int low, int high) {
  if (scale == 0.0f) return std::clamp(0, low, high);
  return static_cast<int>(std::clamp(std::nearbyint(value / scale), static_cast<float>(low), static_cast<float>(high)));
}

/// The value of largest magnitude, with its sign: it gets the one level that has no counterpart.
float Extreme(const float* x, int count) {
  float extreme = 0;
  for (int i = 0; i < count; ++i) {
    if (std::abs(x[i]) > std::abs(extreme)) extreme = x[i];
  }
  return extreme;
}

struct Range {
  float min, max;
};

Range RangeOf(const float* x, int count) {
  auto [low, high] = std::minmax_element(x, x + count);
  return {*low, *high};
}

void Encode(const float* x, BlockQ8_0& block) {
  block.d = StoreScale(std::abs(Extreme(x, 32)) / 127.0f);
  float d = F16ToF32(block.d);
  for (int i = 0; i < 32; ++i) block.q[i] = static_cast<int8_t>(Level(x[i], d, -127, 127));
}

/// Levels 0..2^bits - 1 around the middle one, or above a minimum.
template <int kBits>
void SymmetricLevels(const float* x, uint16_t* d_out, int levels[32]) {
  constexpr int kMiddle = 1 << (kBits - 1);
  *d_out = StoreScale(Extreme(x, 32) / -static_cast<float>(kMiddle));
  float d = F16ToF32(*d_out);
  for (int i = 0; i < 32; ++i) levels[i] = kMiddle + Level(x[i], d, -kMiddle, kMiddle - 1);
}

template <int kBits>
void MinLevels(const float* x, uint16_t* d_out, uint16_t* m_out, int levels[32]) {
  constexpr int kTop = (1 << kBits) - 1;
  Range range = RangeOf(x, 32);
  *m_out = StoreScale(range.min);
  float m = F16ToF32(*m_out);
  *d_out = StoreScale((range.max - m) / static_cast<float>(kTop));
  float d = F16ToF32(*d_out);
  for (int i = 0; i < 32; ++i) levels[i] = Level(x[i] - m, d, 0, kTop);
}

void StoreNibbles(const int levels[32], uint8_t q[16]) {
  for (int i = 0; i < 16; ++i) q[i] = static_cast<uint8_t>((levels[i] & 15) | (levels[i + 16] & 15) << 4);
}

void StoreFifthBits(const int levels[32], uint8_t high[4]) {
  std::memset(high, 0, 4);
  for (int i = 0; i < 32; ++i) high[i / 8] = static_cast<uint8_t>(high[i / 8] | (levels[i] >> 4 & 1) << (i % 8));
}

void Encode(const float* x, BlockQ4_0& block) {
  int levels[32];
  uint16_t d;
  SymmetricLevels<4>(x, &d, levels);
  block.d = d;
  StoreNibbles(levels, block.q);
}

void Encode(const float* x, BlockQ5_0& block) {
  int levels[32];
  uint16_t d;
  SymmetricLevels<5>(x, &d, levels);
  block.d = d;
  StoreNibbles(levels, block.q);
  StoreFifthBits(levels, block.high);
}

void Encode(const float* x, BlockQ4_1& block) {
  int levels[32];
  uint16_t d, m;
  MinLevels<4>(x, &d, &m, levels);
  block.d = d;
  block.m = m;
  StoreNibbles(levels, block.q);
}

void Encode(const float* x, BlockQ5_1& block) {
  int levels[32];
  uint16_t d, m;
  MinLevels<5>(x, &d, &m, levels);
  block.d = d;
  block.m = m;
  StoreNibbles(levels, block.q);
  StoreFifthBits(levels, block.high);
}

void StoreKScales(const uint8_t scale[8], const uint8_t min[8], uint8_t out[kKScaleBytes]) {
  for (int j = 0; j < 4; ++j) {
    out[j] = static_cast<uint8_t>(scale[j] | scale[j + 4] >> 4 << 6);
    out[j + 4] = static_cast<uint8_t>(min[j] | min[j + 4] >> 4 << 6);
    out[j + 8] = static_cast<uint8_t>((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
  }
}

/// Q4_K and Q5_K: levels of 256 elements, 6-bit scales and mins of 32 each under two f16 factors.
template <int kBits, class Block>
void EncodeK(const float* x, Block& block, int levels[256]) {
  constexpr int kTop = (1 << kBits) - 1;
  float scale[8], min[8];
  for (int j = 0; j < 8; ++j) {
    Range range = RangeOf(x + j * 32, 32);
    min[j] = std::max(0.0f, -range.min);
    scale[j] = std::max(0.0f, (range.max + min[j]) / static_cast<float>(kTop));
  }
  block.d = StoreScale(*std::max_element(scale, scale + 8) / 63.0f);
  block.dmin = StoreScale(*std::max_element(min, min + 8) / 63.0f);
  float d = F16ToF32(block.d), dmin = F16ToF32(block.dmin);
  uint8_t scale_level[8], min_level[8];
  for (int j = 0; j < 8; ++j) {
    scale_level[j] = static_cast<uint8_t>(Level(scale[j], d, 0, 63));
    min_level[j] = static_cast<uint8_t>(Level(min[j], dmin, 0, 63));
    float step = d * static_cast<float>(scale_level[j]), base = dmin * static_cast<float>(min_level[j]);
    for (int i = 0; i < 32; ++i) levels[j * 32 + i] = Level(x[j * 32 + i] + base, step, 0, kTop);
  }
  StoreKScales(scale_level, min_level, block.scales);
  for (int j = 0; j < 8; j += 2) {
    for (int i = 0; i < 32; ++i) {
      block.q[j * 16 + i] = static_cast<uint8_t>((levels[j * 32 + i] & 15) | (levels[j * 32 + 32 + i] & 15) << 4);
    }
  }
}

void Encode(const float* x, BlockQ4_K& block) {
  int levels[256];
  EncodeK<4>(x, block, levels);
}

void Encode(const float* x, BlockQ5_K& block) {
  int levels[256];
  EncodeK<5>(x, block, levels);
  for (int i = 0; i < 32; ++i) {
    int bits = 0;
    for (int j = 0; j < 8; ++j) bits |= (levels[j * 32 + i] >> 4 & 1) << j;
    block.high[i] = static_cast<uint8_t>(bits);
  }
}

/// The low two bits of 256 levels.
void StoreTwoBits(const int levels[256], uint8_t q[64]) {
  std::memset(q, 0, 64);
  for (int i = 0; i < 256; ++i) {
    uint8_t& byte = q[i / 128 * 32 + i % 32];
    byte = static_cast<uint8_t>(byte | (levels[i] & 3) << (i % 128 / 32 * 2));
  }
}

void Encode(const float* x, BlockQ2_K& block) {
  float scale[16], min[16];
  for (int j = 0; j < 16; ++j) {
    Range range = RangeOf(x + j * 16, 16);
    min[j] = std::max(0.0f, -range.min);
    scale[j] = std::max(0.0f, (range.max + min[j]) / 3.0f);
  }
  block.d = StoreScale(*std::max_element(scale, scale + 16) / 15.0f);
  block.dmin = StoreScale(*std::max_element(min, min + 16) / 15.0f);
  float d = F16ToF32(block.d), dmin = F16ToF32(block.dmin);
  int levels[256];
  for (int j = 0; j < 16; ++j) {
    int scale_level = Level(scale[j], d, 0, 15), min_level = Level(min[j], dmin, 0, 15);
    block.scales[j] = static_cast<uint8_t>(scale_level | min_level << 4);
    float step = d * static_cast<float>(scale_level), base = dmin * static_cast<float>(min_level);
    for (int i = j * 16; i < j * 16 + 16; ++i) levels[i] = Level(x[i] + base, step, 0, 3);
  }
  StoreTwoBits(levels, block.q);
}

void Encode(const float* x, BlockQ3_K& block) {
  float scale[16];
  for (int j = 0; j < 16; ++j) scale[j] = Extreme(x + j * 16, 16) / -4.0f;
  block.d = StoreScale(Extreme(scale, 16) / -32.0f);
  float d = F16ToF32(block.d);
  int levels[256];
  std::memset(block.high, 0, sizeof(block.high));
  std::memset(block.scales, 0, sizeof(block.scales));
  for (int j = 0; j < 16; ++j) {
    int scale_level = Level(scale[j], d, -32, 31);
    uint8_t &low = block.scales[j % 8], &high = block.scales[8 + j % 4];
    low = static_cast<uint8_t>(low | ((scale_level + 32) & 15) << (j / 8 * 4));
    high = static_cast<uint8_t>(high | (scale_level + 32) >> 4 << (j / 4 * 2));
    for (int i = j * 16; i < j * 16 + 16; ++i) {
      levels[i] = 4 + Level(x[i], d * static_cast<float>(scale_level), -4, 3);
      block.high[i % 32] = static_cast<uint8_t>(block.high[i % 32] | levels[i] >> 2 << (i / 32));
    }
  }
  StoreTwoBits(levels, block.low);
}

void Encode(const float* x, BlockQ6_K& block) {
  float scale[16];
  for (int j = 0; j < 16; ++j) scale[j] = Extreme(x + j * 16, 16) / -32.0f;
  block.d = StoreScale(Extreme(scale, 16) / -128.0f);
  float d = F16ToF32(block.d);
  std::memset(block.low, 0, sizeof(block.low));
  std::memset(block.high, 0, sizeof(block.high));
  for (uint32_t i = 0; i < kSuperColumns; ++i) {
    if (i % 16 == 0) block.scales[i / 16] = static_cast<int8_t>(Level(scale[i / 16], d, -128, 127));
    const int8_t block_scale = block.scales[i / 16];
    int level = 32 + Level(x[i], d * static_cast<float>(block_scale), -32, 31);
    uint32_t half = i / 128, j = i % 128 / 32, l = i % 32;
    uint8_t& low = block.low[64 * half + 32 * (j & 1) + l];
    uint8_t& high = block.high[32 * half + l];
    low = static_cast<uint8_t>(low | (level & 15) << (j / 2 * 4));
    high = static_cast<uint8_t>(high | level >> 4 << (2 * j));
  }
}

/// The code whose value is nearest to x / scale, the lower code of two; 0 for a zero scale.
int Nearest(float x, float scale, const int16_t values[16]) {
  if (scale == 0.0f) return 0;
  const float level = x / scale;
  int best = 0;
  for (int i = 1; i < 16; ++i) {
    if (std::abs(level - static_cast<float>(values[i])) < std::abs(level - static_cast<float>(values[best]))) best = i;
  }
  return best;
}

void StoreCodes(const float* x, float scale, const int16_t values[16], uint8_t q[16]) {
  int codes[32];
  for (int i = 0; i < 32; ++i) codes[i] = Nearest(x[i], scale, values);
  StoreNibbles(codes, q);
}

void Encode(const float* x, BlockIQ4_NL& block) {
  block.d = StoreScale(Extreme(x, 32) / static_cast<float>(kIQ4Values[0]));
  StoreCodes(x, F16ToF32(block.d), kIQ4Values, block.q);
}

void Encode(const float* x, BlockIQ4_XS& block) {
  float scale[8];
  for (int j = 0; j < 8; ++j) scale[j] = Extreme(x + j * 32, 32) / static_cast<float>(kIQ4Values[0]);
  block.d = StoreScale(Extreme(scale, 8) / -32.0f);
  float d = F16ToF32(block.d);
  int low[8], high = 0;
  for (int j = 0; j < 8; ++j) {
    int level = Level(scale[j], d, -32, 31);
    low[j] = (level + 32) & 15;
    high |= (level + 32) >> 4 << (2 * j);
    StoreCodes(x + j * 32, d * static_cast<float>(level), kIQ4Values, block.q + j * 16);
  }
  for (int j = 0; j < 4; ++j) block.scales_low[j] = static_cast<uint8_t>(low[2 * j] | low[2 * j + 1] << 4);
  block.scales_high = static_cast<uint16_t>(high);
}

/// The exponent of the largest magnitude becomes that of E2M1's largest number, 6, as the MX specification proposes:
/// what lies between 6 and 8 of it is rounded down.
void Encode(const float* x, BlockMXFP4& block) {
  const float extreme = std::abs(Extreme(x, 32));
  block.e = extreme == 0.0f ? 0 : static_cast<uint8_t>(std::max(0, std::ilogb(extreme) - 2 + 127));
  StoreCodes(x, MXFP4Scale(block.e), kMXFP4Values, block.q);
}

template <class Block, uint32_t kColumns>
void EncodeBlocks(const float* values, size_t elements, std::byte* out) {
  float x[kColumns];
  for (size_t i = 0; i < elements; i += kColumns, out += sizeof(Block)) {
    std::transform(values + i, values + i + kColumns, x, Finite);
    Encode(x, *reinterpret_cast<Block*>(out));
  }
}

void Narrow(const float* values, size_t elements, uint16_t (*narrow)(float), std::byte* out) {
  for (size_t i = 0; i < elements; ++i) {
    uint16_t bits = narrow(values[i]);
    std::memcpy(out + i * sizeof(bits), &bits, sizeof(bits));
  }
}

}  // namespace

void QuantizeRow(DType dtype, const float* values, size_t elements, std::byte* out) {
  KVIST_CHECK(elements % InfoOf(dtype).block_elements == 0);
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, values, elements * sizeof(float));
      return;
    case DType::kF16:
      return Narrow(values, elements, F32ToF16, out);
    case DType::kBF16:
      return Narrow(values, elements, F32ToBf16, out);
    case DType::kQ8_0:
      return EncodeBlocks<BlockQ8_0, kBlockColumns>(values, elements, out);
    case DType::kQ4_0:
      return EncodeBlocks<BlockQ4_0, kBlockColumns>(values, elements, out);
    case DType::kQ4_1:
      return EncodeBlocks<BlockQ4_1, kBlockColumns>(values, elements, out);
    case DType::kQ5_0:
      return EncodeBlocks<BlockQ5_0, kBlockColumns>(values, elements, out);
    case DType::kQ5_1:
      return EncodeBlocks<BlockQ5_1, kBlockColumns>(values, elements, out);
    case DType::kQ2_K:
      return EncodeBlocks<BlockQ2_K, kSuperColumns>(values, elements, out);
    case DType::kQ3_K:
      return EncodeBlocks<BlockQ3_K, kSuperColumns>(values, elements, out);
    case DType::kQ4_K:
      return EncodeBlocks<BlockQ4_K, kSuperColumns>(values, elements, out);
    case DType::kQ5_K:
      return EncodeBlocks<BlockQ5_K, kSuperColumns>(values, elements, out);
    case DType::kQ6_K:
      return EncodeBlocks<BlockQ6_K, kSuperColumns>(values, elements, out);
    case DType::kIQ4_NL:
      return EncodeBlocks<BlockIQ4_NL, kBlockColumns>(values, elements, out);
    case DType::kIQ4_XS:
      return EncodeBlocks<BlockIQ4_XS, kSuperColumns>(values, elements, out);
    case DType::kMXFP4:
      return EncodeBlocks<BlockMXFP4, kBlockColumns>(values, elements, out);
  }
  CheckFailed(__FILE__, __LINE__, "known dtype");
}

}  // namespace kvist
