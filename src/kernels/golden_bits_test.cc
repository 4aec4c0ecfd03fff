#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/kernels_testutil.h"
#include "kernels/packed.h"
#include "kernels/sampling.h"

// The bits themselves, committed. A kernel's definition may only change on purpose: cached keys and values, recorded
// logits and workers of another build all rely on equal numbers. It also holds two compilers to the same bits. After a
// deliberate change, take the new numbers from the failure messages and say so in the change log.

namespace kvist::kernels {
namespace {

/// FNV-1a over the bits of the numbers.
uint64_t Hash(std::span<const float> values) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (float v : values) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ (std::bit_cast<uint32_t>(v) >> shift & 255)) * 0x100000001b3u;
    }
  }
  return hash;
}

void ExpectHash(std::span<const float> values, uint64_t expected, std::string_view what, Isa isa) {
  EXPECT_EQ(absl::StrFormat("0x%016x", Hash(values)), absl::StrFormat("0x%016x", expected))
      << what << " on " << IsaName(isa);
}

struct MatMulGolden {
  DType dtype;
  uint64_t hash;
};

constexpr MatMulGolden kMatMul[] = {
    {DType::kF32, 0x811494e8e9ce6154},  {DType::kF16, 0xef63a1a57c65a1e5},  {DType::kBF16, 0x69409cba9356a796},
    {DType::kQ8_0, 0x1e3046a29b487745}, {DType::kQ4_0, 0x68e67266115a4000}, {DType::kQ4_1, 0xb4b2460935f7a8be},
    {DType::kQ5_0, 0x11bdd6e688da081b}, {DType::kQ5_1, 0x8db9e1a79d87015e}, {DType::kQ4_K, 0x19cf1191fd172cc6},
    {DType::kQ5_K, 0xf9b5ac0c2341887f}, {DType::kQ6_K, 0x807d912d7c176c70},
};

TEST(GoldenBitsTest, MatMul) {
  for (const MatMulGolden& golden : kMatMul) {
    Prng prng(100);
    uint32_t rows = 20, cols = 512, tokens = 3;
    testing::OwnedMatrix w =
        testing::Pack(golden.dtype, testing::RandomMatrix(golden.dtype, rows, cols, prng), rows, cols);
    std::vector<float> x = testing::RandomRow(testing::Numbers::kPlain, size_t{tokens} * cols, prng);
    for (Isa isa : SupportedIsas()) {
      testing::Activations a = testing::MakeActivations(KernelsFor(isa), golden.dtype, x, tokens, cols);
      std::vector<float> y(tokens * rows);
      KernelsFor(isa).matmul(w.matrix, a.bytes.data(), a.stride, tokens, 0, RowGroups(rows), y.data(), rows);
      ExpectHash(y, golden.hash, InfoOf(golden.dtype).name, isa);
    }
  }
}

TEST(GoldenBitsTest, RowKernels) {
  Prng prng(101);
  constexpr uint32_t kN = 4099;
  std::vector<float> a = testing::RandomRow(testing::Numbers::kPlain, kN, prng);
  std::vector<float> b = testing::RandomRow(testing::Numbers::kPlain, kN, prng), y(kN);
  for (float& x : a) x *= 4;
  for (Isa isa : SupportedIsas()) {
    const KernelTable& k = KernelsFor(isa);
    k.silu_mul(a.data(), b.data(), kN, y.data());
    ExpectHash(y, 0xa518149fd53f8667, "silu_mul", isa);
    k.gelu_tanh_mul(a.data(), b.data(), kN, y.data());
    ExpectHash(y, 0xa8497d56c7da9bcb, "gelu_tanh_mul", isa);
    k.rms_norm(a.data(), b.data(), kN, 1e-5f, y.data());
    ExpectHash(y, 0xe68cb24ab9f81c76, "rms_norm", isa);
    k.softcap(a.data(), 5.0f, kN, y.data());
    ExpectHash(y, 0xe78b8e26c151353d, "softcap", isa);
  }
}

TEST(GoldenBitsTest, Attention) {
  Prng prng(102);
  constexpr uint32_t kDim = 64, kRows = 3, kBlocks = 2;
  std::vector<float> kv = testing::RandomRow(testing::Numbers::kPlain, 2 * kBlocks * kPageTokens * kDim, prng);
  std::vector<float> queries = testing::RandomRow(testing::Numbers::kPlain, kRows * kDim, prng);
  std::vector<VisibleTokens> visible = {{0, 16}, {3, 16}, {0, 9}};
  for (Isa isa : SupportedIsas()) {
    const KernelTable& k = KernelsFor(isa);
    std::vector<float> max(kRows, -std::numeric_limits<float>::infinity()), sum(kRows), acc(kRows * kDim);
    for (uint32_t block = 0; block < kBlocks; ++block) {
      std::vector<uint16_t> keys(kPageTokens * kDim), values(kPageTokens * kDim);
      for (uint32_t t = 0; t < kPageTokens; ++t) {
        k.store_key(&kv[(2 * block * kPageTokens + t) * kDim], kDim, t, keys.data());
        k.store_value(&kv[((2 * block + 1) * kPageTokens + t) * kDim], kDim, t, values.data());
      }
      k.attend_block({keys.data(), values.data(), kDim, kDim, kRows, queries.data(), kDim, visible.data(), 0,
                      max.data(), sum.data(), acc.data(), kDim});
    }
    k.attend_finish(acc.data(), kDim, sum.data(), kRows, kDim, acc.data(), kDim);
    ExpectHash(acc, 0xfa20535d14db73d6, "attention", isa);
  }
}

TEST(GoldenBitsTest, DrawnTokens) {
  Prng prng(103);
  std::vector<float> logits = testing::RandomRow(testing::Numbers::kPlain, 3000, prng);
  for (float& x : logits) x *= 3;
  SamplingScratch scratch;
  std::vector<uint32_t> tokens;
  for (uint64_t position = 0; position < 4; ++position) {
    tokens.push_back(SampleToken(logits, {.seed = 7}, {}, {}, position, scratch));
    tokens.push_back(SampleToken(logits, {.top_k = 50, .top_p = 0.9f, .seed = 7}, {}, {}, position, scratch));
  }
  EXPECT_EQ(tokens, (std::vector<uint32_t>{2084, 1929, 915, 965, 965, 1048, 1173, 1173}));
}

}  // namespace
}  // namespace kvist::kernels
