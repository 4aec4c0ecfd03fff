#include "tensor/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/prng.h"
#include "tensor/half.h"
#include "tensor/quant_blocks.h"
#include "tensor/quantize.h"

namespace kvist {
namespace {

#include "tensor/dequantize_golden.inc"

template <size_t kBytes, size_t kValues>
void ExpectGolden(DType dtype, const uint8_t (&bytes)[kBytes], const uint32_t (&values)[kValues]) {
  ASSERT_EQ(RowBytes(dtype, kValues), kBytes);
  float got[kValues];
  DequantizeRow(dtype, reinterpret_cast<const std::byte*>(bytes), kValues, got);
  for (size_t i = 0; i < kValues; ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), values[i]) << InfoOf(dtype).name << " element " << i;
  }
}

TEST(DequantizeTest, EqualsAnIndependentImplementationBitByBit) {
  ExpectGolden(DType::kF32, kF32Bytes, kF32Values);
  ExpectGolden(DType::kF16, kF16Bytes, kF16Values);
  ExpectGolden(DType::kBF16, kBF16Bytes, kBF16Values);
  ExpectGolden(DType::kQ8_0, kQ8_0Bytes, kQ8_0Values);
  ExpectGolden(DType::kQ4_0, kQ4_0Bytes, kQ4_0Values);
  ExpectGolden(DType::kQ4_1, kQ4_1Bytes, kQ4_1Values);
  ExpectGolden(DType::kQ5_0, kQ5_0Bytes, kQ5_0Values);
  ExpectGolden(DType::kQ5_1, kQ5_1Bytes, kQ5_1Values);
  ExpectGolden(DType::kQ2_K, kQ2_KBytes, kQ2_KValues);
  ExpectGolden(DType::kQ3_K, kQ3_KBytes, kQ3_KValues);
  ExpectGolden(DType::kQ4_K, kQ4_KBytes, kQ4_KValues);
  ExpectGolden(DType::kQ5_K, kQ5_KBytes, kQ5_KValues);
  ExpectGolden(DType::kQ6_K, kQ6_KBytes, kQ6_KValues);
  ExpectGolden(DType::kIQ4_NL, kIQ4_NLBytes, kIQ4_NLValues);
  ExpectGolden(DType::kIQ4_XS, kIQ4_XSBytes, kIQ4_XSValues);
  ExpectGolden(DType::kMXFP4, kMXFP4Bytes, kMXFP4Values);
}

TEST(DequantizeTest, EveryScaleOfMxfp4IsItsPowerOfTwo) {
  for (int e = 0; e < 256; ++e) {
    BlockMXFP4 block{static_cast<uint8_t>(e), {}};
    for (int code = 0; code < 16; ++code) block.q[code] = static_cast<uint8_t>(code * 0x11);
    float got[32];
    DequantizeRow(DType::kMXFP4, reinterpret_cast<const std::byte*>(&block), 32, got);
    constexpr float kE2M1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    for (int i = 0; i < 32; ++i) {
      const float magnitude = std::ldexp(kE2M1[i % 8], e - 127);
      EXPECT_EQ(got[i], i % 16 < 8 ? magnitude : -magnitude) << "e " << e << " element " << i;
    }
  }
}

struct Expected {
  DType dtype;
  double relative_rms;  ///< Error over normally distributed rows; measured, with a margin of a tenth.
};

constexpr Expected kQuality[] = {
    {DType::kF32, 0},      {DType::kF16, 0.00025},  {DType::kBF16, 0.0019},  {DType::kQ8_0, 0.0060},
    {DType::kQ4_0, 0.096}, {DType::kQ4_1, 0.088},   {DType::kQ5_0, 0.049},   {DType::kQ5_1, 0.043},
    {DType::kQ2_K, 0.357}, {DType::kQ3_K, 0.164},   {DType::kQ4_K, 0.089},   {DType::kQ5_K, 0.044},
    {DType::kQ6_K, 0.022}, {DType::kIQ4_NL, 0.086}, {DType::kIQ4_XS, 0.086}, {DType::kMXFP4, 0.125},
};

TEST(QuantizeTest, RoundTripsWithinTheErrorOfTheType) {
  Prng prng(1);
  std::vector<float> x(8192);
  for (float& v : x) {
    v = static_cast<float>((prng.Uniform() + prng.Uniform() + prng.Uniform() + prng.Uniform() - 2) * std::sqrt(3.0));
  }
  for (const Expected& e : kQuality) {
    std::vector<std::byte> stored(RowBytes(e.dtype, x.size()));
    std::vector<float> back(x.size());
    QuantizeRow(e.dtype, x.data(), x.size(), stored.data());
    DequantizeRow(e.dtype, stored.data(), x.size(), back.data());
    double error = 0, power = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      error += (back[i] - x[i]) * (back[i] - x[i]);
      power += x[i] * x[i];
    }
    EXPECT_LE(std::sqrt(error / power), e.relative_rms) << InfoOf(e.dtype).name;
  }
}

// Whatever goes in, block types store finite scales, so that no weight comes back infinite or NaN.
TEST(QuantizeTest, ExtremeRowsStayFinite) {
  std::vector<float> row(256);
  for (int kind = 0; kind < 5; ++kind) {
    for (size_t i = 0; i < row.size(); ++i) {
      constexpr float kValues[] = {3e38f, 1e-40f, 0, std::numeric_limits<float>::infinity(), 1e6f};
      row[i] = i % 7 == 0 ? std::numeric_limits<float>::quiet_NaN() : kValues[kind] * (i % 2 == 0 ? 1.0f : -1.0f);
    }
    for (const Expected& e : kQuality) {
      if (InfoOf(e.dtype).block_elements == 1) continue;
      std::vector<std::byte> stored(RowBytes(e.dtype, row.size()));
      std::vector<float> back(row.size());
      QuantizeRow(e.dtype, row.data(), row.size(), stored.data());
      DequantizeRow(e.dtype, stored.data(), row.size(), back.data());
      for (float v : back) ASSERT_TRUE(std::isfinite(v)) << InfoOf(e.dtype).name << " kind " << kind;
    }
  }
}

TEST(HalfTest, EveryF16AndBf16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    auto half = static_cast<uint16_t>(bits);
    if (float f = F16ToF32(half); std::isnan(f)) {
      EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(f))));
    } else {
      ASSERT_EQ(F32ToF16(f), half);
    }
    if (float f = Bf16ToF32(half); std::isnan(f)) {
      EXPECT_TRUE(std::isnan(Bf16ToF32(F32ToBf16(f))));
    } else {
      ASSERT_EQ(F32ToBf16(f), half);
    }
  }
}

TEST(HalfTest, NarrowingRoundsToNearestEvenAndOverflowsToInfinity) {
  EXPECT_EQ(F32ToF16(1.0f), 0x3c00);
  EXPECT_EQ(F32ToF16(1.0f + 0x1p-11f), 0x3c00);  // Tie, even below.
  EXPECT_EQ(F32ToF16(1.0f + 0x3p-11f), 0x3c02);  // Tie, even above.
  EXPECT_EQ(F32ToF16(1.0f + 0x1p-11f + 0x1p-20f), 0x3c01);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(F32ToF16(0x1p-24f), 1);
  EXPECT_EQ(F32ToF16(0x1p-26f), 0);
  EXPECT_EQ(F32ToBf16(1.0f), 0x3f80);
  EXPECT_EQ(F32ToBf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(F32ToBf16(1.0f + 0x3p-8f), 0x3f82);
  EXPECT_EQ(F32ToBf16(std::numeric_limits<float>::max()), 0x7f80);
  // A NaN whose payload lies in the lower half must not turn into infinity.
  EXPECT_TRUE(std::isnan(Bf16ToF32(F32ToBf16(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace kvist
