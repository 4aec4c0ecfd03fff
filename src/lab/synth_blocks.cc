#include "lab/synth_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/prng.h"
#include "tensor/half.h"
#include "tensor/quant_blocks.h"

namespace kvist::lab {
namespace {

/// Every byte random; what must not be is then mended block by block.
void FillRandom(uint64_t key, uint64_t chunk, std::span<std::byte> out) {
  const uint64_t stream = Mix64(key ^ Mix64(chunk));
  const size_t words = out.size() / 8;
  for (size_t i = 0; i < words; ++i) {
    const uint64_t word = Mix64(stream + i);
    std::memcpy(out.data() + 8 * i, &word, 8);
  }
  const uint64_t last = Mix64(stream + words);
  std::memcpy(out.data() + 8 * words, &last, out.size() % 8);
}

/// Between 0.75 and 1.25, from 16 random bits; mean 1.
float Jitter(uint16_t bits) {
  return 0.75f + static_cast<float>(bits) * (0.5f / 65536.0f);
}

/// Standard deviation of integers uniform over `levels` neighbouring values.
float LevelsSigma(float levels) {
  return std::sqrt((levels * levels - 1) / 12);
}

/// The lowest bit decides a sign: levels -8..7 have the mean -0.5, scales of both signs even that out.
uint16_t SignedScale(uint16_t bits, float scale) {
  return F32ToF16((bits & 1) != 0 ? -scale * Jitter(bits) : scale * Jitter(bits));
}

// Mend(block, sigma) sets the scales of a block whose bytes are random.

void Mend(BlockQ8_0& block, float sigma) {
  block.d = F32ToF16(sigma / LevelsSigma(255) * Jitter(block.d));
  for (int8_t& q : block.q) q = std::max<int8_t>(q, -127);  // Writers of the format never store -128.
}

void Mend(BlockQ4_0& block, float sigma) {
  block.d = SignedScale(block.d, sigma / LevelsSigma(16));
}

void Mend(BlockQ5_0& block, float sigma) {
  block.d = SignedScale(block.d, sigma / LevelsSigma(32));
}

void Mend(BlockQ4_1& block, float sigma) {
  const float d = sigma / LevelsSigma(16) * Jitter(block.d);
  block.d = F32ToF16(d);
  block.m = F32ToF16(-7.5f * d * Jitter(block.m));
}

void Mend(BlockQ5_1& block, float sigma) {
  const float d = sigma / LevelsSigma(32) * Jitter(block.d);
  block.d = F32ToF16(d);
  block.m = F32ToF16(-15.5f * d * Jitter(block.m));
}

/// Sub-block scales 32..63, mins equal to them, so that one pair of factors centres every sub-block.
void MendKScales(uint8_t scales[kKScaleBytes]) {
  for (int j = 0; j < 4; ++j) {
    const int low = 32 | (scales[j] & 31), high = 32 | (scales[j + 4] & 31);  // Sub-blocks j and j + 4.
    scales[j] = scales[j + 4] = static_cast<uint8_t>(low | high >> 4 << 6);
    scales[j + 8] = static_cast<uint8_t>((high & 15) | (high & 15) << 4);
  }
}

constexpr float kMeanKScale = 47.5f;

/// Scales 8..15, mins equal to them.
void Mend(BlockQ2_K& block, float sigma) {
  constexpr float kMeanScale = 11.5f;
  for (uint8_t& pair : block.scales) pair = static_cast<uint8_t>((8 | (pair & 7)) * 0x11);
  const float d = sigma / LevelsSigma(4) / kMeanScale * Jitter(block.d);
  block.d = F32ToF16(d);
  block.dmin = F32ToF16(1.5f * d);
}

/// Makes both bits of each pair equal. As the upper bits of a 6-bit scale (less 32) they leave -32..-17 and 16..31.
constexpr uint32_t EqualPairs(uint32_t bits) {
  return (bits & 0x5555u) * 3;
}

constexpr float kMeanSixBitScale = 24.0f;

void Mend(BlockQ3_K& block, float sigma) {
  for (int i = 8; i < 12; ++i) block.scales[i] = static_cast<uint8_t>(EqualPairs(block.scales[i]));
  block.d = F32ToF16(sigma / LevelsSigma(8) / kMeanSixBitScale * Jitter(block.d));
}

void Mend(BlockQ4_K& block, float sigma) {
  const float d = sigma / LevelsSigma(16) / kMeanKScale * Jitter(block.d);
  block.d = F32ToF16(d);
  block.dmin = F32ToF16(7.5f * d);
  MendKScales(block.scales);
}

void Mend(BlockQ5_K& block, float sigma) {
  const float d = sigma / LevelsSigma(32) / kMeanKScale * Jitter(block.d);
  block.d = F32ToF16(d);
  block.dmin = F32ToF16(15.5f * d);
  MendKScales(block.scales);
}

void Mend(BlockQ6_K& block, float sigma) {
  constexpr float kMeanScale = 95.5f;  // Magnitudes 64..127 of either sign.
  for (int8_t& scale : block.scales) {
    const int magnitude = 64 | (scale & 63);
    scale = static_cast<int8_t>(scale < 0 ? -magnitude : magnitude);
  }
  block.d = F32ToF16(sigma / LevelsSigma(64) / kMeanScale * Jitter(block.d));
}

/// Root of the mean square of values that are equally frequent.
float ValuesRms(const int16_t values[16]) {
  int squares = 0;
  for (int i = 0; i < 16; ++i) squares += values[i] * values[i];
  return std::sqrt(static_cast<float>(squares) / 16);
}

void Mend(BlockIQ4_NL& block, float sigma) {
  block.d = SignedScale(block.d, sigma / ValuesRms(kIQ4Values));
}

void Mend(BlockIQ4_XS& block, float sigma) {
  block.scales_high = static_cast<uint16_t>(EqualPairs(block.scales_high));
  block.d = F32ToF16(sigma / ValuesRms(kIQ4Values) / kMeanSixBitScale * Jitter(block.d));
}

/// The scale is one of the two powers of two next to the wanted one, as often as the mean square asks.
void Mend(BlockMXFP4& block, float sigma) {
  const float wanted = sigma / ValuesRms(kMXFP4Values);
  const int exponent = std::clamp(std::ilogb(wanted), -128, 126);
  const float ratio = std::ldexp(wanted, -exponent);  // 1..2; squares 1 and 4 are to be mixed.
  const bool upper = static_cast<float>(block.e) < 256 * (ratio * ratio - 1) / 3;
  block.e = static_cast<uint8_t>(exponent + 128 + (upper ? 1 : 0));
}

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};
struct F32 {
  uint32_t bits;
};

/// Uniform of standard deviation `sigma`: plus and minus sqrt(3) sigma.
float UniformWeight(uint16_t bits, float sigma) {
  return (static_cast<float>(bits) - 32767.5f) * (std::sqrt(3.0f) / 32768.0f) * sigma;
}

void Mend(F16& value, float sigma) {
  value.bits = F32ToF16(UniformWeight(value.bits, sigma));
}
void Mend(BF16& value, float sigma) {
  value.bits = F32ToBf16(UniformWeight(value.bits, sigma));
}
void Mend(F32& value, float sigma) {
  value.bits = std::bit_cast<uint32_t>(UniformWeight(static_cast<uint16_t>(value.bits), sigma));
}

template <class Block>
void MendAll(std::span<std::byte> out, float sigma) {
  KVIST_CHECK(out.size() % sizeof(Block) == 0);
  for (size_t at = 0; at < out.size(); at += sizeof(Block)) {
    Block block;
    std::memcpy(&block, out.data() + at, sizeof(Block));
    Mend(block, sigma);
    std::memcpy(out.data() + at, &block, sizeof(Block));
  }
}

struct Drawer {
  DType dtype;
  void (*mend)(std::span<std::byte>, float);
};

constexpr std::array kDrawers{
    Drawer{DType::kF32, MendAll<F32>},
    Drawer{DType::kF16, MendAll<F16>},
    Drawer{DType::kQ4_0, MendAll<BlockQ4_0>},
    Drawer{DType::kQ4_1, MendAll<BlockQ4_1>},
    Drawer{DType::kQ5_0, MendAll<BlockQ5_0>},
    Drawer{DType::kQ5_1, MendAll<BlockQ5_1>},
    Drawer{DType::kQ8_0, MendAll<BlockQ8_0>},
    Drawer{DType::kQ4_K, MendAll<BlockQ4_K>},
    Drawer{DType::kQ5_K, MendAll<BlockQ5_K>},
    Drawer{DType::kQ6_K, MendAll<BlockQ6_K>},
    Drawer{DType::kBF16, MendAll<BF16>},
    Drawer{DType::kQ2_K, MendAll<BlockQ2_K>},
    Drawer{DType::kQ3_K, MendAll<BlockQ3_K>},
    Drawer{DType::kIQ4_NL, MendAll<BlockIQ4_NL>},
    Drawer{DType::kIQ4_XS, MendAll<BlockIQ4_XS>},
    Drawer{DType::kMXFP4, MendAll<BlockMXFP4>},
};

const Drawer* FindDrawer(DType dtype) {
  for (const Drawer& drawer : kDrawers) {
    if (drawer.dtype == dtype) return &drawer;
  }
  return nullptr;
}

}  // namespace

bool CanDraw(DType dtype) {
  return FindDrawer(dtype) != nullptr;
}

void DrawChunk(DType dtype, uint64_t key, uint64_t chunk, float sigma, std::span<std::byte> out) {
  const Drawer* drawer = FindDrawer(dtype);
  KVIST_CHECK(drawer != nullptr);
  FillRandom(key, chunk, out);
  drawer->mend(out, sigma);
}

}  // namespace kvist::lab
