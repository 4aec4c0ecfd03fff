// oneDNN's f32 product as an oracle for ours with BF16 and Q8_0 weights.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/kernels_testutil.h"
#include "kernels/packed.h"
#include "onednn_product.h"
#include "tensor/dequantize.h"

namespace kvist::bench {
namespace {

using kernels::Isa;

/// What a product may be off, relative to the sum of the magnitudes of its terms: the f32 chains of both sides, and
/// what the form of the activations leaves of them (kernel_table.h).
double RelativeBound(DType dtype, Isa isa, uint32_t cols) {
  const double chains = 2.0 * cols * 0x1p-24;
  if (dtype == DType::kBF16) return chains + (kernels::BitsOf(isa) == Isa::kReference ? 0 : 0x1p-16);
  return chains;
}

TEST(OneDnnTest, ProductsAreThoseOfOneDnnWithinTheirBound) {
  struct Shape {
    uint32_t rows, cols, tokens;
  };
  Prng prng(1);
  for (const Shape& s : {Shape{48, 256, 1}, {100, 1024, 33}, {33, 4096, 7}, {256, 512, 130}}) {
    for (DType dtype : {DType::kBF16, DType::kQ8_0}) {
      const auto source = kernels::testing::RandomMatrix(dtype, s.rows, s.cols, prng);
      std::vector<float> weights(size_t{s.rows} * s.cols);
      for (uint32_t r = 0; r < s.rows; ++r) {
        DequantizeRow(dtype, source.data() + r * RowBytes(dtype, s.cols), s.cols, &weights[size_t{r} * s.cols]);
      }
      const auto x = kernels::testing::RandomRow(kernels::testing::Numbers::kPlain, size_t{s.tokens} * s.cols, prng);
      std::vector<float> expected(size_t{s.tokens} * s.rows);
      OneDnnProduct(OneDnnType::kF32, s.rows, s.cols, s.tokens, std::as_bytes(std::span(weights)))
          .Run(reinterpret_cast<const std::byte*>(x.data()), expected.data());
      const kernels::testing::OwnedMatrix w = kernels::testing::Pack(dtype, source, s.rows, s.cols);
      for (Isa isa : kernels::SupportedIsas()) {
        const auto a = kernels::testing::MakeActivations(kernels::KernelsFor(isa), dtype, x, s.tokens, s.cols);
        std::vector<float> y(expected.size());
        kernels::KernelsFor(isa).matmul(w.matrix, a.bytes.data(), a.stride, s.tokens, 0, kernels::RowGroups(s.rows),
                                        y.data(), s.rows);
        for (uint32_t t = 0; t < s.tokens; ++t) {
          for (uint32_t r = 0; r < s.rows; ++r) {
            double mass = 0, rounding = 0;
            for (uint32_t k = 0; k < s.cols; k += 32) {
              double amax = 0, of_block = 0;
              for (uint32_t i = k; i < k + 32; ++i) {
                const double w_i = std::abs(double{weights[size_t{r} * s.cols + i]});
                const double x_i = std::abs(double{x[size_t{t} * s.cols + i]});
                mass += w_i * x_i;
                of_block += w_i;
                amax = std::max(amax, x_i);
              }
              if (dtype == DType::kQ8_0) rounding += of_block * amax / 254;  // Half a step of an activation.
            }
            const size_t at = size_t{t} * s.rows + r;
            ASSERT_NEAR(y[at], expected[at], RelativeBound(dtype, isa, s.cols) * mass + rounding)
                << kernels::IsaName(isa) << " " << InfoOf(dtype).name << " row " << r << " token " << t;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvist::bench
