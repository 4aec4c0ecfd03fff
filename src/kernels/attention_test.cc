#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "kernels/attention_testutil.h"
#include "kernels/kernels_testutil.h"
#include "tensor/half.h"

namespace kvist::kernels {
namespace {

using testing::AttendAll;
using testing::AttendTiles;
using testing::Bytes;
using testing::Difference;
using testing::Numbers;
using testing::RandomRow;
using testing::RandomVisible;
using testing::SpoilHiddenSlots;
using testing::Tiles;
using Problem = testing::AttendProblem;
using State = testing::AttendState;

constexpr float kInf = std::numeric_limits<float>::infinity();

/// Fast instruction sets whose attention has the bits of the reference.
std::vector<Isa> IsasOfReferenceBits() {
  std::vector<Isa> isas = testing::FastIsas();
  std::erase_if(isas, [](Isa isa) { return BitsOf(isa) != Isa::kReference; });
  return isas;
}

/// How far attention may be from the exact result for values of about 1.
double Tolerance(Isa isa) {
  return BitsOf(isa) == Isa::kReference ? 2e-6 : 1e-4;
}

constexpr KvType kTypes[] = {KvType::kF16, KvType::kQ8};

/// Expects the bits of the reference from every instruction set that promises them.
void ExpectReferenceBits(Problem& p, uint32_t tokens, uint32_t group, const std::vector<float>& queries,
                         const std::vector<uint64_t>& visible, float softcap) {
  const uint32_t rows = tokens * group;
  SCOPED_TRACE(::testing::Message() << KvTypeName(p.type) << ", key " << p.key_dim << ", value " << p.value_dim << ", "
                                    << tokens << " tokens of " << group);
  State expected(rows, p, softcap, group);
  AttendAll(KernelsFor(Isa::kReference), p, queries, visible, expected);
  for (Isa isa : IsasOfReferenceBits()) {
    State got(rows, p, softcap, group);
    AttendAll(KernelsFor(isa), p, queries, visible, got);
    ASSERT_EQ(Difference(got.All(), expected.All()), "") << IsaName(isa);
    ASSERT_EQ(Difference(got.Finish(KernelsFor(isa)), expected.Finish(KernelsFor(Isa::kReference))), "")
        << IsaName(isa);
  }
}

TEST(AttendTest, EveryInstructionSetEqualsTheReference) {
  Prng prng(1);
  struct Dims {
    uint32_t key, value;
  };
  for (Dims d : {Dims{64, 64}, Dims{128, 128}, Dims{1, 1}, Dims{3, 5}, Dims{16, 24}, Dims{72, 40}, Dims{256, 256},
                 Dims{kHeadDimMax, kHeadDimMax}, Dims{192, 128}}) {
    for (uint32_t tokens = 1; tokens <= 21; tokens += tokens < 6 ? 1 : 15) {
      for (uint32_t group : {1u, 3u}) {
        for (KvType type : kTypes) {
          Problem p(type, d.key, d.value, 6, prng);
          std::vector<float> queries = RandomRow(Numbers::kPlain, size_t{tokens} * group * d.key, prng);
          std::vector<uint64_t> visible = RandomVisible(p, tokens, prng);
          SpoilHiddenSlots(p, visible, tokens, prng);
          ExpectReferenceBits(p, tokens, group, queries, visible, tokens % 2 == 0 ? 5.0f : 0.0f);
        }
      }
    }
  }
}

// Any shape with keys and values of any magnitude, infinities and NaN among them.
TEST(AttendTest, AnyShapeAndAnyPagesEqualTheReference) {
  Prng prng(7);
  constexpr uint32_t kGroups[] = {1, 3, 4, 7};
  constexpr Numbers kNumbers[] = {Numbers::kPlain, Numbers::kWild, Numbers::kBroken};
  for (uint32_t round = 0; round < 96; ++round) {
    const auto key_dim = static_cast<uint32_t>(1 + prng.Below(100));
    const auto value_dim = static_cast<uint32_t>(1 + prng.Below(100));
    const auto tokens = static_cast<uint32_t>(1 + prng.Below(70));
    const uint32_t group = kGroups[round % 4];
    Problem p(kTypes[prng.Below(2)], key_dim, value_dim, static_cast<uint32_t>(1 + prng.Below(9)), prng,
              kNumbers[round % 3]);
    std::vector<float> queries = RandomRow(Numbers::kPlain, size_t{tokens} * group * key_dim, prng);
    std::vector<uint64_t> visible = RandomVisible(p, tokens, prng);
    SpoilHiddenSlots(p, visible, tokens, prng);
    ExpectReferenceBits(p, tokens, group, queries, visible, round % 5 == 0 ? 3.0f : 0.0f);
  }
}

// Queries of any magnitude: saturated scores, infinities and NaN take the same way everywhere.
TEST(AttendTest, WildQueriesEqualTheReference) {
  Prng prng(2);
  for (Numbers numbers : {Numbers::kWild, Numbers::kBroken}) {
    for (int i = 0; i < 100; ++i) {
      Problem p(kTypes[i % 2], 32, 32, 5, prng);
      uint32_t rows = 12;
      std::vector<float> queries = RandomRow(numbers, rows * 32, prng);
      std::vector<uint64_t> visible = RandomVisible(p, rows, prng);
      ExpectReferenceBits(p, rows, 1, queries, visible, 0);
    }
  }
}

TEST(AttendTest, HiddenSlotsChangeNothing) {
  Prng prng(8);
  for (KvType type : kTypes) {
    for (const uint32_t tokens : {1u, 5u, 40u}) {
      Problem p(type, 48, 40, 7, prng);
      std::vector<float> queries = RandomRow(Numbers::kPlain, size_t{tokens} * 3 * 48, prng);
      std::vector<uint64_t> visible = RandomVisible(p, tokens, prng);
      std::vector<std::vector<float>> before;
      for (Isa isa : SupportedIsas()) {
        State state(3 * tokens, p, 0, 3);
        AttendAll(KernelsFor(isa), p, queries, visible, state);
        before.push_back(state.All());
      }
      SpoilHiddenSlots(p, visible, tokens, prng);
      for (size_t i = 0; i < SupportedIsas().size(); ++i) {
        State state(3 * tokens, p, 0, 3);
        AttendAll(KernelsFor(SupportedIsas()[i]), p, queries, visible, state);
        EXPECT_EQ(Difference(state.All(), before[i]), "") << IsaName(SupportedIsas()[i]) << " " << KvTypeName(type);
      }
    }
  }
}

// A token that is no number shows in the rows that see it, and with a scale of its own in no others.
TEST(AttendTest, BrokenTokensOfBytesShowWhereTheyAreSeen) {
  Prng prng(9);
  constexpr uint32_t kDim = 32, kToken = 5;
  for (const float broken : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()}) {
    for (const bool in_key : {true, false}) {
      for (Isa isa : SupportedIsas()) {
        Problem p(KvType::kQ8, kDim, kDim, 1, prng);
        std::vector<float> row(kDim, 1.0f), queries = RandomRow(Numbers::kPlain, 2 * kDim, prng);
        row[17] = broken;
        auto* store = in_key ? KernelsFor(isa).store_key : KernelsFor(isa).store_value;
        store(KvType::kQ8, row.data(), kDim, kToken, in_key ? p.KeyPage(0) : p.ValuePage(0));
        State state(2, p);
        AttendAll(KernelsFor(isa), p, queries, {0xffff, 0xffff & ~(1u << kToken)}, state);
        const std::vector<float> y = state.Finish(KernelsFor(isa));
        for (uint32_t i = 0; i < kDim; ++i) {
          EXPECT_TRUE(std::isnan(y[i])) << IsaName(isa);
          EXPECT_TRUE(std::isfinite(y[kDim + i])) << IsaName(isa);
        }
      }
    }
  }
}

/// Softmax over all that token `row` sees, in double.
std::vector<double> ExactRow(const Problem& p, const std::vector<float>& queries, const std::vector<uint64_t>& visible,
                             uint32_t rows, uint32_t row, float softcap) {
  double total = 0;
  std::vector<double> exact(p.value_dim);
  for (uint32_t slot = 0; slot < p.blocks * kPageTokens; ++slot) {
    if ((visible[slot / kTileTokens * rows + row] >> slot % kTileTokens & 1) == 0) continue;
    double score = 0;
    for (uint32_t i = 0; i < p.key_dim; ++i) {
      score += static_cast<double>(queries[row * p.key_dim + i]) * p.keys[slot * p.key_dim + i];
    }
    if (softcap > 0) score = softcap * std::tanh(score / softcap);
    const double weight = std::exp(score);
    total += weight;
    for (uint32_t i = 0; i < p.value_dim; ++i) exact[i] += weight * p.values[slot * p.value_dim + i];
  }
  for (double& y : exact) y = total == 0 ? 0 : y / total;
  return exact;
}

TEST(AttendTest, EveryInstructionSetIsNearAPlainSoftmaxInDouble) {
  Prng prng(3);
  for (uint32_t round = 0; round < 12; ++round) {
    const uint32_t rows = 21;
    const uint32_t dim = std::array{64u, 1u, 33u, 100u}[round % 4], value_dim = std::array{48u, 1u, 90u}[round % 3];
    const float softcap = round % 2 == 0 ? 0.0f : 3.0f;
    Problem p(kTypes[round / 2 % 2], dim, value_dim, 18, prng);
    std::vector<float> queries = RandomRow(Numbers::kPlain, rows * dim, prng);
    for (float& q : queries) q /= 4;
    std::vector<uint64_t> visible = RandomVisible(p, rows, prng);
    SpoilHiddenSlots(p, visible, rows, prng);
    for (Isa isa : SupportedIsas()) {
      SCOPED_TRACE(::testing::Message() << IsaName(isa) << " " << KvTypeName(p.type) << " " << dim);
      State state(rows, p, softcap);
      AttendAll(KernelsFor(isa), p, queries, visible, state);
      const std::vector<float> y = state.Finish(KernelsFor(isa));
      for (uint32_t r = 0; r < rows; ++r) {
        const std::vector<double> exact = ExactRow(p, queries, visible, rows, r, softcap);
        for (uint32_t i = 0; i < value_dim; ++i)
          ASSERT_NEAR(y[r * value_dim + i], exact[i], Tolerance(isa)) << "row " << r;
      }
    }
  }
}

// A query row has the same bits alone as among others, whatever they see.
TEST(AttendTest, ARowHasTheSameBitsAloneAndInABatch) {
  Prng prng(4);
  for (KvType type : kTypes) {
    for (const uint32_t dim : {80u, 33u}) {
      uint32_t rows = 23;
      Problem p(type, dim, dim, 9, prng);
      std::vector<float> queries = RandomRow(Numbers::kPlain, rows * dim, prng);
      std::vector<uint64_t> visible = RandomVisible(p, rows, prng);
      SpoilHiddenSlots(p, visible, rows, prng);
      for (Isa isa : SupportedIsas()) {
        State batch(rows, p);
        AttendAll(KernelsFor(isa), p, queries, visible, batch);
        const std::vector<float> together = batch.Finish(KernelsFor(isa));
        for (uint32_t r = 0; r < rows; ++r) {
          std::vector<float> query(queries.begin() + r * dim, queries.begin() + (r + 1) * dim);
          std::vector<uint64_t> own;
          for (uint32_t tile = 0; tile < Tiles(p); ++tile) own.push_back(visible[tile * rows + r]);
          State alone(1, p);
          AttendAll(KernelsFor(isa), p, query, own, alone);
          const std::vector<float> expected(together.begin() + r * dim, together.begin() + (r + 1) * dim);
          ASSERT_EQ(Difference(alone.Finish(KernelsFor(isa)), expected), "")
              << IsaName(isa) << " " << KvTypeName(type) << " row " << r;
        }
      }
    }
  }
}

// Sums of two parts of a view, merged: near the whole in one go, and the same bits on every instruction set.
TEST(AttendTest, PartsMerge) {
  Prng prng(6);
  uint32_t rows = 9, dim = 40;
  Problem p(KvType::kF16, dim, dim, 16, prng);
  std::vector<float> queries = RandomRow(Numbers::kPlain, rows * dim, prng);
  for (float& q : queries) q /= 4;
  std::vector<uint64_t> visible = RandomVisible(p, rows, prng);
  for (uint32_t tile = 0; tile < Tiles(p); ++tile) visible[tile * rows] = tile < 2 ? ~uint64_t{0} : 0;  // First only.
  for (uint32_t tile = 0; tile < Tiles(p); ++tile)
    visible[tile * rows + 1] = tile < 2 ? 0 : ~uint64_t{0};  // Last only.
  for (uint32_t tile = 0; tile < Tiles(p); ++tile) visible[tile * rows + 2] = 0;
  auto merged = [&](Isa isa) {
    State first(rows, p), last(rows, p);
    AttendTiles(KernelsFor(isa), p, queries, 0, 2, visible, first);
    AttendTiles(KernelsFor(isa), p, queries, 2, Tiles(p), visible, last);
    KernelsFor(isa).attend_merge(first.shape, last.Sums(), first.Sums());
    return first.Finish(KernelsFor(isa));
  };
  for (Isa isa : SupportedIsas()) {
    const std::vector<float> y = merged(isa);
    for (uint32_t r = 0; r < rows; ++r) {
      const std::vector<double> exact = ExactRow(p, queries, visible, rows, r, 0);
      for (uint32_t i = 0; i < dim; ++i) ASSERT_NEAR(y[r * dim + i], exact[i], Tolerance(isa)) << "row " << r;
    }
  }
  for (Isa isa : IsasOfReferenceBits()) EXPECT_EQ(Difference(merged(isa), merged(Isa::kReference)), "") << IsaName(isa);
}

TEST(AttendTest, RowsThatSeeNothingStayAsTheyAreAndEndAsZero) {
  Prng prng(5);
  uint32_t dim = 32;
  Problem p(KvType::kF16, dim, dim, 4, prng);
  std::vector<float> queries = RandomRow(Numbers::kPlain, 3 * dim, prng);
  std::vector<uint64_t> visible = {~uint64_t{0}, 0, 0};
  for (Isa isa : SupportedIsas()) {
    State state(3, p);
    AttendAll(KernelsFor(isa), p, queries, visible, state);
    const std::vector<float> y = state.Finish(KernelsFor(isa));
    EXPECT_NE(y[0], 0);
    for (uint32_t r : {1u, 2u}) {
      EXPECT_EQ(state.max[r], -kInf);
      EXPECT_TRUE(std::all_of(y.begin() + r * dim, y.begin() + (r + 1) * dim, [](float v) { return v == 0; }));
    }
  }
}

TEST(StoreTest, PagesHoldTheNearestHalfAndSaturate) {
  Prng prng(6);
  for (uint32_t width : {1u, 7u, 8u, 16u, 30u, 64u, 100u, 256u}) {
    std::vector<float> row = RandomRow(Numbers::kBroken, width, prng);
    row[0] = 65520.0f;  // Would round to infinity.
    std::vector<uint16_t> keys(width * kPageTokens, 0xabcd), values = keys;
    for (Isa isa : SupportedIsas()) {
      KernelsFor(isa).store_key(KvType::kF16, row.data(), width, 3, reinterpret_cast<std::byte*>(keys.data()));
      KernelsFor(isa).store_value(KvType::kF16, row.data(), width, 3, reinterpret_cast<std::byte*>(values.data()));
      for (uint32_t i = 0; i < width; ++i) {
        uint16_t key = keys[i * kPageTokens + 3], value = values[3 * width + i];
        if (std::isnan(row[i])) {
          ASSERT_TRUE(std::isnan(F16ToF32(key)) && std::isnan(F16ToF32(value))) << IsaName(isa);
          continue;
        }
        uint16_t expected = F32ToF16(std::clamp(row[i], -65504.0f, 65504.0f));
        ASSERT_EQ(key, expected) << IsaName(isa) << " element " << i << " = " << row[i];
        ASSERT_EQ(value, expected) << IsaName(isa) << " element " << i << " = " << row[i];
      }
      for (uint32_t i = 0; i < width * kPageTokens; ++i) {
        ASSERT_TRUE(i % kPageTokens == 3 || keys[i] == 0xabcd) << IsaName(isa);
        ASSERT_TRUE(i / width == 3 || values[i] == 0xabcd) << IsaName(isa);
      }
    }
  }
}

/// Expects a block of kQ8 from the definition. @param integer  integer(i) is that of element i.
template <class Integer>
void ExpectBytes(std::span<const float> block, float scale, Integer integer) {
  float amax = 0;
  bool broken = false;
  for (float x : block) broken |= !std::isfinite(x), amax = std::max(amax, std::abs(x));
  const bool zero = broken || amax < 0x1p-120f;
  if (broken) {
    ASSERT_TRUE(std::isnan(scale));
  } else {
    ASSERT_EQ(scale, zero ? 0.0f : amax / 127.0f);
  }
  for (uint32_t i = 0; i < block.size(); ++i) {
    ASSERT_EQ(integer(i), zero ? 0 : static_cast<int>(std::nearbyint(block[i] * (127.0f / amax)))) << block[i];
  }
}

// Scales and integers as quantize_rows makes them of a block: bit by bit, from the definition. Nothing else is written.
TEST(StoreTest, PagesOfBytesHoldScalesAndIntegers) {
  Prng prng(10);
  constexpr uint32_t kSlot = 3;
  for (const uint32_t width : {1u, 7u, 8u, 16u, 30u, 31u, 33u, 64u, 100u, 256u, kHeadDimMax}) {
    const uint32_t blocks = (width + kKvKeyBlock - 1) / kKvKeyBlock;
    for (uint32_t round = 0; round < 12; ++round) {
      std::vector<float> row = RandomRow(static_cast<Numbers>(round % 3), width, prng);
      if (round == 3) std::ranges::fill(row, -0.0f);
      if (round == 6) std::ranges::fill(row, 0x1p-121f);
      if (round == 9) row[width / 2] = -0x1p-120f;
      for (Isa isa : SupportedIsas()) {
        SCOPED_TRACE(::testing::Message() << IsaName(isa) << ", width " << width << ", round " << round);
        Bytes keys(KvKeyPageBytes(KvType::kQ8, width)), values(KvValuePageBytes(KvType::kQ8, width));
        KernelsFor(isa).store_key(KvType::kQ8, row.data(), width, kSlot, keys.data());
        KernelsFor(isa).store_value(KvType::kQ8, row.data(), width, kSlot, values.data());
        const auto* key_scales = reinterpret_cast<const float*>(keys.data());
        const auto* key_bytes = reinterpret_cast<const int8_t*>(keys.data() + blocks * kKvScaleBytes);
        const auto* value_bytes = reinterpret_cast<const int8_t*>(values.data() + kKvScaleBytes);
        for (uint32_t b = 0; b < blocks; ++b) {
          const uint32_t first = b * kKvKeyBlock;
          ExpectBytes(std::span<const float>(row).subspan(first, std::min(kKvKeyBlock, width - first)),
                      key_scales[b * kPageTokens + kSlot],
                      [&](uint32_t i) { return key_bytes[(first + i) * kPageTokens + kSlot]; });
        }
        ExpectBytes(row, reinterpret_cast<const float*>(values.data())[kSlot],
                    [&](uint32_t i) { return value_bytes[kSlot * width + i]; });
        // Other bytes are those of new memory. Slots of keys lie side by side among scales as among integers.
        const uint32_t scales_end = blocks * kKvScaleBytes, numbers_end = scales_end + width * kPageTokens;
        for (uint32_t i = 0; i < keys.size(); ++i) {
          const uint32_t slot = i < scales_end ? i / 4 % kPageTokens : (i - scales_end) % kPageTokens;
          const bool written = i < numbers_end && slot == kSlot;
          ASSERT_TRUE(written || keys.data()[i] == std::byte{0xa5}) << "byte " << i;
        }
        for (uint32_t i = 0; i < values.size(); ++i) {
          const bool written = i < kKvScaleBytes ? i / 4 == kSlot : (i - kKvScaleBytes) / width == kSlot;
          ASSERT_TRUE(written || values.data()[i] == std::byte{0xa5}) << "byte " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvist::kernels
