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
  uint64_t amx_hash = hash;
};

constexpr MatMulGolden kMatMul[] = {
    {DType::kF32, 0x811494e8e9ce6154},
    {DType::kF16, 0xef63a1a57c65a1e5, 0x8904a314bdd7b91f},
    {DType::kBF16, 0x69409cba9356a796, 0xfa0b867470f6c274},
    {DType::kQ8_0, 0x1e3046a29b487745},
    {DType::kQ4_0, 0x68e67266115a4000},
    {DType::kQ4_1, 0xb4b2460935f7a8be},
    {DType::kQ5_0, 0x11bdd6e688da081b},
    {DType::kQ5_1, 0x8db9e1a79d87015e},
    {DType::kQ4_K, 0x19cf1191fd172cc6},
    {DType::kQ5_K, 0xf9b5ac0c2341887f},
    {DType::kQ6_K, 0x807d912d7c176c70},
    {DType::kIQ4_NL, 0x5ea44df11f6bab33},
    {DType::kIQ4_XS, 0x1a3f22f9c587e079},
    {DType::kQ2_K, 0xb0c815afad4df09a},
    {DType::kQ3_K, 0x26c6ea590d6a937d},
    {DType::kMXFP4, 0x93439e106ce0cab7},
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
      ExpectHash(y, BitsOf(isa) == Isa::kAmx ? golden.amx_hash : golden.hash, InfoOf(golden.dtype).name, isa);
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

struct AttentionGolden {
  KvType type;
  uint64_t hash, amx_hash;
};

constexpr AttentionGolden kAttention[] = {
    {KvType::kF16, 0x94c2a1b00e30f55a, 0xbe28ad85e0ed5b75},
    {KvType::kQ8, 0x47b9b9c68ccccc6f, 0x2c095b50792220c7},
};

class GoldenAttention : public ::testing::TestWithParam<AttentionGolden> {};

TEST_P(GoldenAttention, Attention) {
  Prng prng(102);
  const KvType type = GetParam().type;
  constexpr uint32_t kDim = 64, kTokens = 3, kBlocks = 6;
  std::vector<float> kv = testing::RandomRow(testing::Numbers::kPlain, 2 * kBlocks * kPageTokens * kDim, prng);
  std::vector<float> queries = testing::RandomRow(testing::Numbers::kPlain, kTokens * kDim, prng);
  std::vector<uint64_t> visible = {~uint64_t{0}, ~uint64_t{0} << 3, 0x1ff, 0xffffffff, 0xfffffff8, 0};
  const AttendShape shape{kTokens, 1, kDim, kDim, 0, type};
  for (Isa isa : SupportedIsas()) {
    const KernelTable& k = KernelsFor(isa);
    const size_t page_bytes = KvKeyPageBytes(type, kDim);
    testing::Bytes pages(2 * kBlocks * page_bytes);
    auto page = [&](uint32_t i) { return pages.data() + i * page_bytes; };
    for (uint32_t i = 0; i < kBlocks * kPageTokens; ++i) {
      k.store_key(type, &kv[2 * i * kDim], kDim, i % kPageTokens, page(2 * (i / kPageTokens)));
      k.store_value(type, &kv[(2 * i + 1) * kDim], kDim, i % kPageTokens, page(2 * (i / kPageTokens) + 1));
    }
    std::vector<float> max(kTokens, -std::numeric_limits<float>::infinity()), sum(kTokens * kPageTokens);
    std::vector<float> acc(kTokens * kDim);
    const AttendSums sums{max.data(), sum.data(), acc.data(), kDim};
    testing::Bytes prepared(k.attend_query_bytes(shape));
    k.attend_prepare(shape, queries.data(), kDim, 0.25f, prepared.data());
    for (uint32_t tile = 0; tile < 2; ++tile) {
      AttendTile blocks{.keys = {}, .values = {}, .visible = visible.data() + tile * kTokens};
      for (uint32_t b = 0; b < kTileBlocks && tile * kTileBlocks + b < kBlocks; ++b) {
        blocks.keys[b] = page(2 * (tile * kTileBlocks + b));
        blocks.values[b] = page(2 * (tile * kTileBlocks + b) + 1);
      }
      k.attend(shape, prepared.data(), blocks, sums);
    }
    k.attend_finish(shape, sums, acc.data(), kDim);
    ExpectHash(acc, BitsOf(isa) == Isa::kAmx ? GetParam().amx_hash : GetParam().hash, "attention", isa);
  }
}

INSTANTIATE_TEST_SUITE_P(GoldenBitsTest, GoldenAttention, ::testing::ValuesIn(kAttention),
                         [](const auto& test) { return std::string(KvTypeName(test.param.type)); });

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
