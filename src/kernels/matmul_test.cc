#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "kernels/amx/amx.h"
#include "kernels/kernels_testutil.h"
#include "kernels/packed.h"
#include "tensor/dequantize.h"
#include "tensor/quant_blocks.h"
#include "tensor/quantize.h"

namespace kvist::kernels {
namespace {

using testing::Activations;
using testing::AllTypes;
using testing::Difference;
using testing::FastIsas;
using testing::FastIsasLikeReference;
using testing::Numbers;
using testing::OwnedMatrix;

constexpr float kUntouched = 12345.0f;

struct Shape {
  uint32_t rows, cols, tokens;
};

std::string Describe(DType dtype, const Shape& s) {
  return std::string(InfoOf(dtype).name) + " rows " + std::to_string(s.rows) + " cols " + std::to_string(s.cols) +
         " tokens " + std::to_string(s.tokens);
}

/// y [tokens][rows + 3], the three columns of padding untouched if the kernel is right.
std::vector<float> Product(const KernelTable& kernels, const PackedMatrix& w, const std::vector<float>& x,
                           uint32_t tokens) {
  size_t stride = w.rows + 3;
  std::vector<float> y(tokens * stride, kUntouched);
  Activations activations = testing::MakeActivations(kernels, w.dtype, x, tokens, w.cols);
  kernels.matmul(w, activations.bytes.data(), activations.stride, tokens, 0, RowGroups(w.rows), y.data(), stride);
  return y;
}

/// Empty when every instruction set that must equal the reference does, else the first that does not, and where.
std::string DifferenceFromReference(const PackedMatrix& w, const std::vector<float>& x, const Shape& s) {
  const std::vector<float> expected = Product(KernelsFor(Isa::kReference), w, x, s.tokens);
  for (Isa isa : FastIsasLikeReference(w.dtype)) {
    const std::string difference = Difference(Product(KernelsFor(isa), w, x, s.tokens), expected);
    if (!difference.empty()) return std::string(IsaName(isa)) + " " + Describe(w.dtype, s) + ": " + difference;
  }
  return "";
}

std::vector<Shape> ShapesOf(DType dtype) {
  uint32_t block = InfoOf(dtype).block_elements;
  std::vector<Shape> shapes;
  for (uint32_t tokens = 1; tokens <= 33; tokens += tokens < 10 ? 1 : 7) shapes.push_back({19, block * 3, tokens});
  for (uint32_t rows : {1u, 7u, 8u, 9u, 15u, 16u, 17u, 40u}) shapes.push_back({rows, block * 2, 3});
  for (uint32_t blocks = 1; blocks <= 9; ++blocks) shapes.push_back({17, block * blocks, 5});
  return shapes;
}

TEST(MatMulTest, EveryInstructionSetEqualsTheReference) {
  Prng prng(3);
  for (DType dtype : AllTypes()) {
    for (const Shape& s : ShapesOf(dtype)) {
      for (Numbers numbers : {Numbers::kPlain, Numbers::kWild, Numbers::kBroken}) {
        auto source = numbers == Numbers::kPlain ? testing::RandomMatrix(dtype, s.rows, s.cols, prng)
                                                 : testing::RandomBits(dtype, s.rows, s.cols, prng);
        OwnedMatrix w = testing::Pack(dtype, source, s.rows, s.cols);
        std::vector<float> x = testing::RandomRow(numbers, size_t{s.tokens} * s.cols, prng);
        ASSERT_EQ(DifferenceFromReference(w.matrix, x, s), "");
      }
    }
  }
}

// Tiles of 16 tokens and pairs of tiles and groups: every remainder of them, of panels of blocks and of units.
TEST(MatMulTest, EveryRemainderOfTilesEqualsTheReference) {
  Prng prng(12);
  for (DType dtype : AllTypes()) {
    uint32_t block = InfoOf(dtype).block_elements == 256 ? 256 : 32;
    std::vector<Shape> shapes;
    for (uint32_t tokens = 1; tokens <= 65; ++tokens) shapes.push_back({33, block * 3, tokens});
    for (uint32_t rows : {1u, 15u, 31u, 32u, 47u}) shapes.push_back({rows, block, 47});
    // Longer than a strip of 64 blocks, and more tokens than a chunk of 256, with remainders.
    shapes.push_back({20, block == 256 ? 2304u : 2048u + 3 * 32, 44});
    shapes.push_back({20, block == 256 ? 4352u : 4096u + 32, 63});
    shapes.push_back({17, block, 256 + 33});
    for (const Shape& s : shapes) {
      OwnedMatrix w = testing::Pack(dtype, testing::RandomBits(dtype, s.rows, s.cols, prng), s.rows, s.cols);
      std::vector<float> x = testing::RandomRow(Numbers::kWild, size_t{s.tokens} * s.cols, prng);
      ASSERT_EQ(DifferenceFromReference(w.matrix, x, s), "");
    }
  }
}

// The tiles themselves, with the few tokens that MatMul would give to AVX-512.
TEST(MatMulTest, TilesWithFewTokensEqualTheReference) {
  std::span<const Isa> isas = SupportedIsas();
  if (std::find(isas.begin(), isas.end(), Isa::kAmx) == isas.end()) GTEST_SKIP() << "no AMX here";
  Prng prng(14);
  for (DType dtype : AllTypes()) {
    if (!UsesQuantizedActivations(dtype)) continue;
    for (uint32_t tokens = 1; tokens <= 33; ++tokens) {
      for (Numbers numbers : {Numbers::kPlain, Numbers::kBroken}) {
        Shape s{35, InfoOf(dtype).block_elements * 5, tokens};
        OwnedMatrix w = testing::Pack(dtype, testing::RandomBits(dtype, s.rows, s.cols, prng), s.rows, s.cols);
        std::vector<float> x = testing::RandomRow(numbers, size_t{tokens} * s.cols, prng);
        Activations a = testing::MakeActivations(KernelsFor(Isa::kReference), dtype, x, tokens, s.cols);
        std::vector<float> y(size_t{tokens} * s.rows), expected(y.size());
        KernelsFor(Isa::kReference).matmul(w.matrix, a.bytes.data(), a.stride, tokens, 0, 3, expected.data(), s.rows);
        amx::QuantizedMatMul(w.matrix, a.bytes.data(), a.stride, tokens, 0, 3, y.data(), s.rows);
        ASSERT_EQ(Difference(y, expected), "") << Describe(dtype, s);
      }
    }
  }
}

// Tile registers and their configuration belong to a thread.
TEST(MatMulTest, ThreadsDoNotDisturbEachOther) {
  Prng prng(13);
  Shape s{64, 512, 48};
  for (DType dtype : {DType::kQ4_0, DType::kQ6_K, DType::kF16}) {
    OwnedMatrix w = testing::Pack(dtype, testing::RandomMatrix(dtype, s.rows, s.cols, prng), s.rows, s.cols);
    std::vector<float> x = testing::RandomRow(Numbers::kPlain, size_t{s.tokens} * s.cols, prng);
    for (Isa isa : FastIsas()) {
      const std::vector<float> expected = Product(KernelsFor(isa), w.matrix, x, s.tokens);
      std::atomic<int> differences = 0;
      std::vector<std::thread> threads;
      for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
          for (int run = 0; run < 50; ++run) {
            differences += !Difference(Product(KernelsFor(isa), w.matrix, x, s.tokens), expected).empty();
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(differences, 0) << IsaName(isa) << " " << InfoOf(dtype).name;
    }
  }
}

/// A matrix whose integers lie at the ends of their range, where narrow intermediate sums would overflow.
std::vector<std::byte> ExtremeMatrix(DType dtype, uint32_t rows, uint32_t cols) {
  std::vector<float> row(cols, -0.97f);  // The largest integer, once the extreme of the block has the smallest.
  for (uint32_t k = 0; k < cols; k += 16) row[k] = 1;
  size_t row_bytes = RowBytes(dtype, cols);
  std::vector<std::byte> out(rows * row_bytes);
  for (uint32_t r = 0; r < rows; ++r) QuantizeRow(dtype, row.data(), cols, out.data() + r * row_bytes);
  return out;
}

/// Where the f16 factors of a block lie.
std::vector<uint32_t> FactorsOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ2_K:
      return {offsetof(BlockQ2_K, d), offsetof(BlockQ2_K, dmin)};
    case DType::kQ3_K:
      return {offsetof(BlockQ3_K, d)};
    case DType::kQ6_K:
      return {offsetof(BlockQ6_K, d)};
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kMXFP4:
      return {};
    default:
      return {0};
  }
}

/// The same for sub-scales and codes too: one byte everywhere but in the factors, which are 1.
std::vector<std::byte> FilledMatrix(DType dtype, uint32_t rows, uint32_t cols, uint8_t byte) {
  std::vector<std::byte> out(rows * RowBytes(dtype, cols), std::byte{byte});
  for (size_t at = 0; at < out.size(); at += InfoOf(dtype).block_bytes) {
    for (uint32_t factor : FactorsOf(dtype)) std::memcpy(out.data() + at + factor, "\x00\x3c", 2);
    if (dtype == DType::kMXFP4) out[at] = std::byte{127};
  }
  return out;
}

TEST(MatMulTest, IntegersAtTheEndsOfTheirRangeEqualTheReference) {
  for (DType dtype : AllTypes()) {
    Shape s{16, 512, 37};  // Enough for tiles, and some more.
    std::vector<std::vector<std::byte>> sources = {ExtremeMatrix(dtype, s.rows, s.cols)};
    for (uint8_t byte : {0x00, 0xff, 0x80, 0x7f, 0x77, 0x88, 0x0f, 0xf0}) {
      if (UsesQuantizedActivations(dtype)) sources.push_back(FilledMatrix(dtype, s.rows, s.cols, byte));
    }
    for (size_t i = 0; i < sources.size(); ++i) {
      OwnedMatrix w = testing::Pack(dtype, sources[i], s.rows, s.cols);
      for (float value : {1.0f, -1.0f}) {
        std::vector<float> x(size_t{s.tokens} * s.cols, value);
        std::vector<float> expected = Product(KernelsFor(Isa::kReference), w.matrix, x, s.tokens);
        EXPECT_TRUE(std::isfinite(expected[0])) << Describe(dtype, s);
        for (Isa isa : FastIsasLikeReference(dtype)) {
          EXPECT_EQ(Difference(Product(KernelsFor(isa), w.matrix, x, s.tokens), expected), "")
              << IsaName(isa) << " " << Describe(dtype, s) << " source " << i;
        }
      }
    }
  }
}

// More activations than the cache budget of a pass, so that the walk goes over the weights several times.
TEST(MatMulTest, LongBatchesEqualTheReference) {
  Prng prng(4);
  for (DType dtype : {DType::kQ4_0, DType::kF16}) {
    Shape s{20, 8192, 131};
    OwnedMatrix w = testing::Pack(dtype, testing::RandomMatrix(dtype, s.rows, s.cols, prng), s.rows, s.cols);
    std::vector<float> x = testing::RandomRow(Numbers::kPlain, size_t{s.tokens} * s.cols, prng);
    EXPECT_EQ(DifferenceFromReference(w.matrix, x, s), "");
  }
}

TEST(MatMulTest, VocabularySizedMatricesEqualTheReference) {
  Prng prng(5);
  Shape s{151'936 + 5, 32, 1};
  OwnedMatrix w =
      testing::Pack(DType::kQ8_0, testing::RandomMatrix(DType::kQ8_0, s.rows, s.cols, prng), s.rows, s.cols);
  std::vector<float> x = testing::RandomRow(Numbers::kPlain, s.cols, prng);
  std::vector<float> expected = Product(KernelsFor(Isa::kReference), w.matrix, x, 1);
  for (Isa isa : FastIsas())
    EXPECT_EQ(Difference(Product(KernelsFor(isa), w.matrix, x, 1), expected), "") << IsaName(isa);
}

// The central promise: a token has the same bits alone, in a batch, and whoever computes which groups.
TEST(MatMulTest, ATokenHasTheSameBitsAloneAndInABatch) {
  Prng prng(6);
  for (DType dtype : AllTypes()) {
    Shape s{50, InfoOf(dtype).block_elements * 5, 33};
    OwnedMatrix w = testing::Pack(dtype, testing::RandomMatrix(dtype, s.rows, s.cols, prng), s.rows, s.cols);
    std::vector<float> x = testing::RandomRow(Numbers::kPlain, size_t{s.tokens} * s.cols, prng);
    for (Isa isa : SupportedIsas()) {
      const KernelTable& kernels = KernelsFor(isa);
      std::vector<float> batch = Product(kernels, w.matrix, x, s.tokens);
      size_t stride = s.rows + 3;
      for (uint32_t t = 0; t < s.tokens; ++t) {
        std::vector<float> one(x.begin() + t * s.cols, x.begin() + (t + 1) * s.cols);
        Activations activations = testing::MakeActivations(kernels, dtype, one, 1, s.cols);
        std::vector<float> y(stride, kUntouched);
        for (uint32_t group = RowGroups(s.rows); group-- > 0;) {
          kernels.matmul(w.matrix, activations.bytes.data(), activations.stride, 1, group, group + 1, y.data(), stride);
        }
        std::span<const float> in_batch(batch.data() + t * stride, stride);
        ASSERT_EQ(Difference(y, in_batch), "") << IsaName(isa) << " token " << t << " of " << Describe(dtype, s);
      }
    }
  }
}

TEST(MatMulTest, WritesOnlyTheGroupsAskedFor) {
  Prng prng(7);
  for (DType dtype : AllTypes()) {
    uint32_t rows = 60, cols = InfoOf(dtype).block_elements, tokens = 5;
    OwnedMatrix w = testing::Pack(dtype, testing::RandomMatrix(dtype, rows, cols, prng), rows, cols);
    std::vector<float> x = testing::RandomRow(Numbers::kPlain, size_t{tokens} * cols, prng);
    for (Isa isa : SupportedIsas()) {
      Activations a = testing::MakeActivations(KernelsFor(isa), dtype, x, tokens, cols);
      std::vector<float> y(tokens * rows, kUntouched);
      KernelsFor(isa).matmul(w.matrix, a.bytes.data(), a.stride, tokens, 1, 2, y.data(), rows);
      for (uint32_t i = 0; i < y.size(); ++i) {
        bool inside = i % rows >= 16 && i % rows < 32;
        ASSERT_EQ(y[i] == kUntouched, !inside) << IsaName(isa) << " " << InfoOf(dtype).name << " element " << i;
      }
    }
  }
}

/// Rounding of one accumulation chain of `steps` f32 additions over terms whose magnitudes sum to `mass`.
double ChainError(double steps, double mass) {
  return (steps + 4) * 0x1p-24 * mass;
}

// The reference against double precision. The quantised types may err by the rounding of the activations, half a step
// (amax / 254) per element, plus the f32 chain; the float types by the chain only.
TEST(MatMulTest, ReferenceStaysWithinTheErrorBoundOfTheExactProduct) {
  Prng prng(8);
  for (DType dtype : AllTypes()) {
    Shape s{32, 1024, 3};
    auto source = testing::RandomMatrix(dtype, s.rows, s.cols, prng);
    OwnedMatrix w = testing::Pack(dtype, source, s.rows, s.cols);
    std::vector<float> x = testing::RandomRow(Numbers::kPlain, size_t{s.tokens} * s.cols, prng);
    std::vector<float> y = Product(KernelsFor(Isa::kReference), w.matrix, x, s.tokens);
    bool quantized = UsesQuantizedActivations(dtype);
    for (uint32_t r = 0; r < s.rows; ++r) {
      std::vector<float> row(s.cols);
      DequantizeRow(dtype, source.data() + r * RowBytes(dtype, s.cols), s.cols, row.data());
      for (uint32_t t = 0; t < s.tokens; ++t) {
        double exact = 0, mass = 0, rounding = 0;
        for (uint32_t k = 0; k < s.cols; ++k) {
          const float* block = x.data() + t * s.cols + k / 32 * 32;
          double amax = 0;
          for (int i = 0; i < 32; ++i) amax = std::max(amax, std::abs(static_cast<double>(block[i])));
          double w_k = row[k], x_k = x[t * s.cols + k];
          exact += w_k * x_k;
          mass += std::abs(w_k) * (quantized ? amax : std::abs(x_k));
          rounding += quantized ? std::abs(w_k) * amax / 254 : 0;
        }
        double bound = rounding + ChainError(quantized ? s.cols / 16.0 : s.cols / 4.0, mass);
        ASSERT_NEAR(y[t * (s.rows + 3) + r], exact, bound) << InfoOf(dtype).name << " row " << r << " token " << t;
      }
    }
  }
}

// The same against the activations as they were quantised: what is left is the f32 chain.
TEST(MatMulTest, ReferenceIsExactButForItsChain) {
  Prng prng(9);
  for (DType dtype : AllTypes()) {
    if (!UsesQuantizedActivations(dtype)) continue;
    Shape s{16, 1024, 1};
    auto source = testing::RandomMatrix(dtype, s.rows, s.cols, prng);
    OwnedMatrix w = testing::Pack(dtype, source, s.rows, s.cols);
    std::vector<float> x = testing::RandomRow(Numbers::kPlain, s.cols, prng);
    Activations a = testing::MakeActivations(KernelsFor(Isa::kReference), dtype, x, 1, s.cols);
    const auto* q = reinterpret_cast<const int8_t*>(a.bytes.data());
    const auto* meta = reinterpret_cast<const ActivationMeta*>(a.bytes.data() + s.cols);
    std::vector<float> y = Product(KernelsFor(Isa::kReference), w.matrix, x, 1);
    for (uint32_t r = 0; r < s.rows; ++r) {
      std::vector<float> row(s.cols);
      DequantizeRow(dtype, source.data() + r * RowBytes(dtype, s.cols), s.cols, row.data());
      double exact = 0, mass = 0;
      for (uint32_t k = 0; k < s.cols; ++k) {
        double product = static_cast<double>(row[k]) * meta[k / 32].scale * q[k];
        exact += product;
        mass += std::abs(product);
      }
      EXPECT_NEAR(y[r], exact, ChainError(s.cols / 16.0, mass)) << InfoOf(dtype).name << " row " << r;
    }
  }
}

// Products on tiles of bf16 err by what two bf16 numbers leave of an activation, 2^-16, for F16 by the product of the
// low numbers, 2^-14, and by the f32 chain.
TEST(MatMulTest, HalvesOnTilesStayWithinTheErrorBoundOfTheReference) {
  Prng prng(15);
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    for (const Shape& s : {Shape{16, 32, 1}, {35, 64, 33}, {17, 1, 3}, {48, 33, 17}, {33, 2049, 5}, {20, 4129, 150}}) {
      auto source = testing::RandomMatrix(dtype, s.rows, s.cols, prng);
      OwnedMatrix w = testing::Pack(dtype, source, s.rows, s.cols);
      std::vector<float> x = testing::RandomRow(Numbers::kPlain, size_t{s.tokens} * s.cols, prng);
      std::vector<float> expected = Product(KernelsFor(Isa::kReference), w.matrix, x, s.tokens);
      for (Isa isa : FastIsas()) {
        std::vector<float> y = Product(KernelsFor(isa), w.matrix, x, s.tokens);
        for (uint32_t t = 0; t < s.tokens; ++t) {
          for (uint32_t r = 0; r < s.rows; ++r) {
            double mass = 0;
            std::vector<float> row(s.cols);
            DequantizeRow(dtype, source.data() + r * RowBytes(dtype, s.cols), s.cols, row.data());
            for (uint32_t k = 0; k < s.cols; ++k) mass += std::abs(double{row[k]} * x[t * s.cols + k]);
            const size_t at = t * (s.rows + 3) + r;
            ASSERT_NEAR(y[at], expected[at],
                        (dtype == DType::kF16 ? 0x1p-14 : 0x1p-16) * mass + ChainError(s.cols, mass))
                << IsaName(isa) << " row " << r << " of " << Describe(dtype, s);
          }
          for (uint32_t r = s.rows; r < s.rows + 3; ++r) ASSERT_EQ(y[t * (s.rows + 3) + r], kUntouched);
        }
      }
    }
  }
}

TEST(QuantizeRowsTest, EveryInstructionSetWritesTheBytesOfTheReference) {
  Prng prng(10);
  for (Numbers numbers : {Numbers::kPlain, Numbers::kWild, Numbers::kBroken}) {
    for (uint32_t cols : {32u, 64u, 96u, 256u, 2048u}) {
      std::vector<float> x = testing::RandomRow(numbers, size_t{7} * cols, prng);
      // Halves and thirds of a step, where rounding to even shows.
      for (uint32_t i = 0; i < 32; ++i) x[i] = static_cast<float>(i) / 2 - 7;
      x[31] = 127;
      Activations expected = testing::MakeActivations(KernelsFor(Isa::kReference), DType::kQ8_0, x, 7, cols);
      for (Isa isa : FastIsas()) {
        Activations got = testing::MakeActivations(KernelsFor(isa), DType::kQ8_0, x, 7, cols);
        for (uint32_t t = 0; t < 7; ++t) {
          const std::byte* a = got.bytes.data() + t * got.stride;
          const std::byte* b = expected.bytes.data() + t * got.stride;
          uint32_t q_bytes = (cols + 63) / 64 * 64;
          ASSERT_EQ(std::memcmp(a, b, q_bytes), 0) << IsaName(isa) << " cols " << cols;
          const auto* meta_a = reinterpret_cast<const ActivationMeta*>(a + q_bytes);
          const auto* meta_b = reinterpret_cast<const ActivationMeta*>(b + q_bytes);
          for (uint32_t i = 0; i < cols / 32; ++i) {
            float got_floats[] = {meta_a[i].scale, meta_a[i].scaled_sum};
            float expected_floats[] = {meta_b[i].scale, meta_b[i].scaled_sum};
            ASSERT_EQ(Difference(got_floats, expected_floats), "") << IsaName(isa) << " block " << i;
            ASSERT_EQ(meta_a[i].sum, meta_b[i].sum) << IsaName(isa) << " block " << i;
            ASSERT_EQ(meta_a[i].sum_first, meta_b[i].sum_first) << IsaName(isa) << " block " << i;
          }
          const auto* tail_a = reinterpret_cast<const std::byte*>(meta_a + cols / 32);
          ASSERT_TRUE(std::all_of(tail_a, a + got.stride, [](std::byte v) { return v == std::byte{0}; }));
        }
      }
    }
  }
}

// A number that is not finite must be seen in the answer of its token, and in no other.
TEST(MatMulTest, NaNReachesTheWholeOutputRowAndNoOther) {
  Prng prng(11);
  for (DType dtype : AllTypes()) {
    uint32_t rows = 20, cols = InfoOf(dtype).block_elements * 2, tokens = 9;
    OwnedMatrix w = testing::Pack(dtype, testing::RandomMatrix(dtype, rows, cols, prng), rows, cols);
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> x = testing::RandomRow(Numbers::kPlain, size_t{tokens} * cols, prng);
      x[4 * cols + cols - 1] = bad;
      for (Isa isa : SupportedIsas()) {
        std::vector<float> y = Product(KernelsFor(isa), w.matrix, x, tokens);
        for (uint32_t t = 0; t < tokens; ++t) {
          for (uint32_t r = 0; r < rows; ++r) {
            ASSERT_EQ(!std::isfinite(y[t * (rows + 3) + r]), t == 4) << IsaName(isa) << " " << InfoOf(dtype).name;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvist::kernels
