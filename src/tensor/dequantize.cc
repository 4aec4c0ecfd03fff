#include "tensor/dequantize.h"

#include <cstring>

#include "base/check.h"
#include "tensor/half.h"
#include "tensor/quant_blocks.h"

namespace kvist {
namespace {

void Decode(const BlockQ8_0& block, float* out) {
  float d = F16ToF32(block.d);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(block.q[i]);
}

void Decode(const BlockQ4_0& block, float* out) {
  float d = F16ToF32(block.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((block.q[i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((block.q[i] >> 4) - 8);
  }
}

void Decode(const BlockQ4_1& block, float* out) {
  float d = F16ToF32(block.d);
  float m = F16ToF32(block.m);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(block.q[i] & 15) + m;
    out[i + 16] = d * static_cast<float>(block.q[i] >> 4) + m;
  }
}

/// The 5-bit integer of element i (0..31).
int FiveBits(const uint8_t q[16], const uint8_t high[4], int i) {
  int low = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
  return low | (high[i / 8] >> (i % 8) & 1) << 4;
}

void Decode(const BlockQ5_0& block, float* out) {
  float d = F16ToF32(block.d);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(FiveBits(block.q, block.high, i) - 16);
}

void Decode(const BlockQ5_1& block, float* out) {
  float d = F16ToF32(block.d);
  float m = F16ToF32(block.m);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(FiveBits(block.q, block.high, i)) + m;
}

/// The two bits of element i (0..255).
int TwoBits(const uint8_t q[64], uint32_t i) {
  return q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

void Decode(const BlockQ2_K& block, float* out) {
  float d = F16ToF32(block.d);
  float dmin = F16ToF32(block.dmin);
  for (uint32_t i = 0; i < kSuperColumns; ++i) {
    float scale = d * static_cast<float>(block.scales[i / 16] & 15);
    float min = dmin * static_cast<float>(block.scales[i / 16] >> 4);
    out[i] = scale * static_cast<float>(TwoBits(block.q, i)) - min;
  }
}

void Decode(const BlockQ3_K& block, float* out) {
  float d = F16ToF32(block.d);
  for (uint32_t i = 0; i < kSuperColumns; ++i) {
    int value = TwoBits(block.low, i) | (block.high[i % 32] >> (i / 32) & 1) << 2;
    out[i] = d * static_cast<float>(Q3Scale(block, i / 16)) * static_cast<float>(value - 4);
  }
}

void Decode(const BlockQ4_K& block, float* out) {
  float d = F16ToF32(block.d);
  float dmin = F16ToF32(block.dmin);
  for (uint32_t j = 0; j < 8; ++j) {
    ScaleMin sm = KScaleMin(block.scales, j);
    float scale = d * static_cast<float>(sm.scale);
    float min = dmin * static_cast<float>(sm.min);
    const uint8_t* q = block.q + j / 2 * 32;
    uint32_t shift = j % 2 * 4;
    for (uint32_t i = 0; i < 32; ++i) out[j * 32 + i] = scale * static_cast<float>(q[i] >> shift & 15) - min;
  }
}

void Decode(const BlockQ5_K& block, float* out) {
  float d = F16ToF32(block.d);
  float dmin = F16ToF32(block.dmin);
  for (uint32_t j = 0; j < 8; ++j) {
    ScaleMin sm = KScaleMin(block.scales, j);
    float scale = d * static_cast<float>(sm.scale);
    float min = dmin * static_cast<float>(sm.min);
    const uint8_t* q = block.q + j / 2 * 32;
    uint32_t shift = j % 2 * 4;
    for (uint32_t i = 0; i < 32; ++i) {
      int value = (q[i] >> shift & 15) | (block.high[i] >> j & 1) << 4;
      out[j * 32 + i] = scale * static_cast<float>(value) - min;
    }
  }
}

void Decode(const BlockQ6_K& block, float* out) {
  float d = F16ToF32(block.d);
  for (uint32_t i = 0; i < kSuperColumns; ++i) {
    uint32_t half = i / 128, j = i % 128 / 32, l = i % 32;
    int low = block.low[64 * half + 32 * (j & 1) + l] >> (j / 2 * 4) & 15;
    int high = block.high[32 * half + l] >> (2 * j) & 3;
    const int8_t block_scale = block.scales[i / 16];
    out[i] = d * static_cast<float>(block_scale) * static_cast<float>((low | high << 4) - 32);
  }
}

void Decode(const BlockIQ4_NL& block, float* out) {
  float d = F16ToF32(block.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kIQ4Values[block.q[i] & 15]);
    out[i + 16] = d * static_cast<float>(kIQ4Values[block.q[i] >> 4]);
  }
}

void Decode(const BlockIQ4_XS& block, float* out) {
  float d = F16ToF32(block.d);
  for (uint32_t j = 0; j < 8; ++j, out += 32) {
    float scale = d * static_cast<float>(IQ4Scale(block, j));
    const uint8_t* q = block.q + 16 * j;
    for (int i = 0; i < 16; ++i) {
      out[i] = scale * static_cast<float>(kIQ4Values[q[i] & 15]);
      out[i + 16] = scale * static_cast<float>(kIQ4Values[q[i] >> 4]);
    }
  }
}

void Decode(const BlockMXFP4& block, float* out) {
  float d = MXFP4Scale(block.e);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kMXFP4Values[block.q[i] & 15]);
    out[i + 16] = d * static_cast<float>(kMXFP4Values[block.q[i] >> 4]);
  }
}

template <class Block, uint32_t kColumns>
void DecodeBlocks(const std::byte* source, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += kColumns, source += sizeof(Block)) {
    Decode(*reinterpret_cast<const Block*>(source), out + i);
  }
}

void Widen(const std::byte* source, size_t elements, float (*widen)(uint16_t), float* out) {
  for (size_t i = 0; i < elements; ++i) {
    uint16_t bits;
    std::memcpy(&bits, source + i * sizeof(bits), sizeof(bits));
    out[i] = widen(bits);
  }
}

}  // namespace

void DequantizeRow(DType dtype, const std::byte* source, size_t elements, float* out) {
  KVIST_CHECK(elements % InfoOf(dtype).block_elements == 0);
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, source, elements * sizeof(float));
      return;
    case DType::kF16:
      return Widen(source, elements, F16ToF32, out);
    case DType::kBF16:
      return Widen(source, elements, Bf16ToF32, out);
    case DType::kQ8_0:
      return DecodeBlocks<BlockQ8_0, kBlockColumns>(source, elements, out);
    case DType::kQ4_0:
      return DecodeBlocks<BlockQ4_0, kBlockColumns>(source, elements, out);
    case DType::kQ4_1:
      return DecodeBlocks<BlockQ4_1, kBlockColumns>(source, elements, out);
    case DType::kQ5_0:
      return DecodeBlocks<BlockQ5_0, kBlockColumns>(source, elements, out);
    case DType::kQ5_1:
      return DecodeBlocks<BlockQ5_1, kBlockColumns>(source, elements, out);
    case DType::kQ2_K:
      return DecodeBlocks<BlockQ2_K, kSuperColumns>(source, elements, out);
    case DType::kQ3_K:
      return DecodeBlocks<BlockQ3_K, kSuperColumns>(source, elements, out);
    case DType::kQ4_K:
      return DecodeBlocks<BlockQ4_K, kSuperColumns>(source, elements, out);
    case DType::kQ5_K:
      return DecodeBlocks<BlockQ5_K, kSuperColumns>(source, elements, out);
    case DType::kQ6_K:
      return DecodeBlocks<BlockQ6_K, kSuperColumns>(source, elements, out);
    case DType::kIQ4_NL:
      return DecodeBlocks<BlockIQ4_NL, kBlockColumns>(source, elements, out);
    case DType::kIQ4_XS:
      return DecodeBlocks<BlockIQ4_XS, kSuperColumns>(source, elements, out);
    case DType::kMXFP4:
      return DecodeBlocks<BlockMXFP4, kBlockColumns>(source, elements, out);
  }
  CheckFailed(__FILE__, __LINE__, "known dtype");
}

}  // namespace kvist
