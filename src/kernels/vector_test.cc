#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/kernels_testutil.h"
#include "kernels/scalar_math.h"
#include "tensor/half.h"

namespace kvist::kernels {
namespace {

using testing::Difference;
using testing::FastIsas;
using testing::Numbers;
using testing::RandomRow;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Distance in units in the last place of the correctly rounded value.
double UlpError(float got, double exact) {
  float rounded = static_cast<float>(exact);
  double ulp = std::max(static_cast<double>(std::nextafter(std::abs(rounded), kInf)) - std::abs(rounded), 0x1p-149);
  return std::abs(static_cast<double>(got) - exact) / ulp;
}

TEST(ScalarMathTest, ExpIsWithinTwoUlpEverywhere) {
  double worst = 0;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 1009) {
    float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!(std::abs(x) < 104) || x > 88.72f) continue;
    worst = std::max(worst, UlpError(Exp(x), std::exp(static_cast<double>(x))));
  }
  for (float x = -104; x < 88.72f; x += 0.0007f) {
    worst = std::max(worst, UlpError(Exp(x), std::exp(static_cast<double>(x))));
  }
  EXPECT_LT(worst, 2);
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST(ScalarMathTest, TanhIsWithinTwoUlpEverywhere) {
  double worst = 0;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 1009) {
    float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isfinite(x)) worst = std::max(worst, UlpError(Tanh(x), std::tanh(static_cast<double>(x))));
  }
  for (float x = -10; x < 10; x += 0.00007f) {
    worst = std::max(worst, UlpError(Tanh(x), std::tanh(static_cast<double>(x))));
  }
  EXPECT_LT(worst, 2);
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST(ScalarMathTest, EndsOfTheRange) {
  EXPECT_EQ(Exp(0), 1);
  EXPECT_EQ(Exp(-kInf), 0);
  EXPECT_EQ(Exp(kInf), kInf);
  EXPECT_EQ(Exp(89), kInf);
  EXPECT_EQ(Exp(-1e30f), 0);
  EXPECT_TRUE(std::isnan(Exp(kNan)));
  EXPECT_EQ(Tanh(kInf), 1);
  EXPECT_EQ(Tanh(-kInf), -1);
  EXPECT_TRUE(std::signbit(Tanh(-0.0f)));
  EXPECT_TRUE(std::isnan(Tanh(kNan)));
  float row[3] = {1, 3, kNan};
  ExpRow(row, 3, 1, 2, row);
  EXPECT_EQ(row[0], 1);
  EXPECT_EQ(row[1], Exp(1));
  EXPECT_TRUE(std::isnan(row[2]));
}

using Kernel = std::function<void(const KernelTable&, const float* a, const float* b, uint32_t n, float* y)>;

struct NamedKernel {
  const char* name;
  Kernel run;
};

std::vector<NamedKernel> RowKernels() {
  return {
      {"silu_mul", [](auto& k, auto a, auto b, auto n, auto y) { k.silu_mul(a, b, n, y); }},
      {"gelu_tanh_mul", [](auto& k, auto a, auto b, auto n, auto y) { k.gelu_tanh_mul(a, b, n, y); }},
      {"add", [](auto& k, auto a, auto b, auto n, auto y) { k.add(a, b, n, y); }},
      {"scale", [](auto& k, auto a, auto, auto n, auto y) { k.scale(a, 0.37f, n, y); }},
      {"softcap", [](auto& k, auto a, auto, auto n, auto y) { k.softcap(a, 30.0f, n, y); }},
      {"rms_norm", [](auto& k, auto a, auto b, auto n, auto y) { k.rms_norm(a, b, n, 1e-5f, y); }},
      {"rms_norm without weight", [](auto& k, auto a, auto, auto n, auto y) { k.rms_norm(a, nullptr, n, 1e-6f, y); }},
  };
}

TEST(RowKernelsTest, EveryInstructionSetEqualsTheReference) {
  Prng prng(1);
  for (const NamedKernel& kernel : RowKernels()) {
    for (Numbers numbers : {Numbers::kPlain, Numbers::kWild, Numbers::kBroken}) {
      for (uint32_t n = 1; n <= 300; n += n < 70 ? 1 : 23) {
        std::vector<float> a = RandomRow(numbers, n, prng), b = RandomRow(numbers, n, prng);
        std::vector<float> expected(n + 1, 7.0f);
        kernel.run(KernelsFor(Isa::kReference), a.data(), b.data(), n, expected.data());
        ASSERT_EQ(expected[n], 7.0f);
        for (Isa isa : FastIsas()) {
          std::vector<float> got(n + 1, 7.0f);
          kernel.run(KernelsFor(isa), a.data(), b.data(), n, got.data());
          ASSERT_EQ(Difference(got, expected), "") << IsaName(isa) << " " << kernel.name << " n " << n;
          std::vector<float> in_place = a;
          kernel.run(KernelsFor(isa), in_place.data(), b.data(), n, in_place.data());
          expected.resize(n);
          ASSERT_EQ(Difference(in_place, expected), "") << IsaName(isa) << " " << kernel.name << " in place, n " << n;
          expected.resize(n + 1, 7.0f);
        }
      }
    }
  }
}

// exp and tanh of the vector kernels over the whole line, through the kernels that use them.
TEST(RowKernelsTest, ExponentialsEqualTheReferenceOnASweepOfAllFloats) {
  std::vector<float> x, ones;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 10007) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (float v = -110; v < 110; v += 0.003f) x.push_back(v);
  ones.assign(x.size(), 1.0f);
  auto n = static_cast<uint32_t>(x.size());
  std::vector<float> expected(n), got(n);
  for (const NamedKernel& kernel : RowKernels()) {
    kernel.run(KernelsFor(Isa::kReference), x.data(), ones.data(), n, expected.data());
    for (Isa isa : FastIsas()) {
      kernel.run(KernelsFor(isa), x.data(), ones.data(), n, got.data());
      EXPECT_EQ(Difference(got, expected), "") << IsaName(isa) << " " << kernel.name;
    }
  }
}

TEST(RowKernelsTest, ReferenceIsNearDoublePrecision) {
  Prng prng(2);
  const KernelTable& k = KernelsFor(Isa::kReference);
  constexpr uint32_t kN = 1000;
  std::vector<float> g = RandomRow(Numbers::kPlain, kN, prng), u = RandomRow(Numbers::kPlain, kN, prng), y(kN);
  for (float& x : g) x *= 3;
  k.silu_mul(g.data(), u.data(), kN, y.data());
  for (uint32_t i = 0; i < kN; ++i) {
    double x = g[i];
    ASSERT_NEAR(y[i], x / (1 + std::exp(-x)) * u[i], 1e-6 * std::abs(x * u[i]) + 1e-30);
  }
  k.gelu_tanh_mul(g.data(), u.data(), kN, y.data());
  for (uint32_t i = 0; i < kN; ++i) {
    double x = g[i];
    double gelu = 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    ASSERT_NEAR(y[i], gelu * u[i], 1e-6 * std::abs(x * u[i]) + 1e-30);
  }
  k.softcap(g.data(), 2.0f, kN, y.data());
  for (uint32_t i = 0; i < kN; ++i) ASSERT_NEAR(y[i], 2 * std::tanh(g[i] / 2.0), 1e-6);
  k.rms_norm(g.data(), u.data(), kN, 1e-5f, y.data());
  double sum = 0;
  for (float x : g) sum += static_cast<double>(x) * x;
  for (uint32_t i = 0; i < kN; ++i) {
    double exact = g[i] / std::sqrt(sum / kN + 1e-5) * u[i];
    ASSERT_NEAR(y[i], exact, 1e-6 * std::abs(exact) + 1e-30);
  }
}

TEST(RopeTest, EveryInstructionSetEqualsTheReference) {
  Prng prng(3);
  for (RopePairs pairs : {RopePairs::kHalves, RopePairs::kAdjacent}) {
    for (uint32_t head_dim : {2u, 8u, 16u, 20u, 32u, 64u, 96u, 128u, 256u}) {
      for (uint32_t rotary : {head_dim, head_dim / 4 * 2, 2u}) {
        std::vector<float> x = RandomRow(Numbers::kWild, 3 * head_dim, prng);
        std::vector<float> cos = RandomRow(Numbers::kPlain, rotary / 2, prng);
        std::vector<float> sin = RandomRow(Numbers::kPlain, rotary / 2, prng);
        std::vector<float> expected = x;
        KernelsFor(Isa::kReference).rope(expected.data(), 3, head_dim, rotary, cos.data(), sin.data(), pairs);
        for (Isa isa : FastIsas()) {
          std::vector<float> got = x;
          KernelsFor(isa).rope(got.data(), 3, head_dim, rotary, cos.data(), sin.data(), pairs);
          ASSERT_EQ(Difference(got, expected), "") << IsaName(isa) << " head " << head_dim << " rotary " << rotary;
        }
      }
    }
  }
}

TEST(RopeTest, TurnsThePairsThatTheLayoutNames) {
  std::vector<float> cos = {0, 1}, sin = {1, 0};  // First pair by 90 degrees, second not at all.
  for (Isa isa : SupportedIsas()) {
    std::vector<float> halves = {1, 2, 3, 4, 5}, adjacent = halves;
    KernelsFor(isa).rope(halves.data(), 1, 5, 4, cos.data(), sin.data(), RopePairs::kHalves);
    EXPECT_EQ(halves, (std::vector<float>{-3, 2, 1, 4, 5}));
    KernelsFor(isa).rope(adjacent.data(), 1, 5, 4, cos.data(), sin.data(), RopePairs::kAdjacent);
    EXPECT_EQ(adjacent, (std::vector<float>{-2, 1, 3, 4, 5}));
  }
}

TEST(DispatchTest, NamesAndSetsAgree) {
  EXPECT_EQ(SupportedIsas().front(), Isa::kReference);
  EXPECT_EQ(SupportedIsas().back(), BestIsa());
  for (Isa isa : SupportedIsas()) {
    EXPECT_EQ(KernelsFor(isa).isa, isa);
    absl::StatusOr<Isa> parsed = ParseIsa(IsaName(isa));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, isa);
  }
  EXPECT_EQ(ParseIsa("sse9").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseIsa("").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvist::kernels
