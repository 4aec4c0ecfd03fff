#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/kernels_testutil.h"
#include "tensor/half.h"

namespace kvist::kernels {
namespace {

using testing::Bytes;
using testing::Difference;
using testing::Numbers;
using testing::RandomRow;

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

/// Blocks of one KV head with queries, as f32 (rounded to f16) and as pages.
struct Problem {
  uint32_t key_dim, value_dim, blocks;
  std::vector<float> keys, values;  ///< [blocks * kPageTokens][dim]
  Bytes key_pages, value_pages;     ///< [blocks] pages

  Problem(uint32_t key_width, uint32_t value_width, uint32_t blocks_count, Prng& prng)
      : key_dim(key_width),
        value_dim(value_width),
        blocks(blocks_count),
        keys(RandomRow(Numbers::kPlain, size_t{blocks} * kPageTokens * key_dim, prng)),
        values(RandomRow(Numbers::kPlain, size_t{blocks} * kPageTokens * value_dim, prng)),
        key_pages(blocks * kPageTokens * key_dim * 2),
        value_pages(blocks * kPageTokens * value_dim * 2) {
    const KernelTable& k = KernelsFor(Isa::kReference);
    for (uint32_t t = 0; t < blocks * kPageTokens; ++t) {
      k.store_key(&keys[t * key_dim], key_dim, t % kPageTokens, KeyPage(t / kPageTokens));
      k.store_value(&values[t * value_dim], value_dim, t % kPageTokens, ValuePage(t / kPageTokens));
    }
    for (float& x : keys) x = F16ToF32(F32ToF16(x));
    for (float& x : values) x = F16ToF32(F32ToF16(x));
  }

  uint16_t* KeyPage(uint32_t block) {
    return reinterpret_cast<uint16_t*>(key_pages.data()) + block * kPageTokens * key_dim;
  }
  uint16_t* ValuePage(uint32_t block) {
    return reinterpret_cast<uint16_t*>(value_pages.data()) + block * kPageTokens * value_dim;
  }
};

/// Running sums of a set of query rows, one head each.
struct State {
  AttendShape shape;
  size_t stride;
  std::vector<float> max, sum, acc;

  State(uint32_t rows, const Problem& p, float softcap = 0, uint32_t group = 1)
      : shape{rows / group, group, p.key_dim, p.value_dim, softcap},
        stride((p.value_dim + 15) / 16 * 16),
        max(rows, -kInf),
        sum(size_t{rows} * kPageTokens, 0),
        acc(rows * stride, 0) {}

  AttendSums Sums() { return {max.data(), sum.data(), acc.data(), stride}; }
  std::vector<float> All() const {
    std::vector<float> all = max;
    all.insert(all.end(), sum.begin(), sum.end());
    all.insert(all.end(), acc.begin(), acc.end());
    return all;
  }
  std::vector<float> Finish(const KernelTable& kernels) {
    const size_t width = size_t{shape.group} * shape.value_dim;
    std::vector<float> y(shape.tokens * width);
    kernels.attend_finish(shape, Sums(), y.data(), width);
    return y;
  }
};

uint32_t Tiles(const Problem& p) {
  return (p.blocks + kTileBlocks - 1) / kTileBlocks;
}

/// Attends to tiles [begin, end); `visible` is [tiles][tokens].
void AttendTiles(const KernelTable& kernels, Problem& p, const std::vector<float>& queries, uint32_t begin,
                 uint32_t end, const std::vector<uint64_t>& visible, State& state) {
  Bytes prepared(kernels.attend_query_bytes(state.shape));
  kernels.attend_prepare(state.shape, queries.data(), size_t{state.shape.group} * p.key_dim, 1.0f, prepared.data());
  for (uint32_t tile = begin; tile < end; ++tile) {
    AttendTile blocks{.keys = {}, .values = {}, .visible = visible.data() + tile * state.shape.tokens};
    for (uint32_t b = 0; b < kTileBlocks && tile * kTileBlocks + b < p.blocks; ++b) {
      blocks.keys[b] = p.KeyPage(tile * kTileBlocks + b);
      blocks.values[b] = p.ValuePage(tile * kTileBlocks + b);
    }
    kernels.attend(state.shape, prepared.data(), blocks, state.Sums());
  }
}

void AttendAll(const KernelTable& kernels, Problem& p, const std::vector<float>& queries,
               const std::vector<uint64_t>& visible, State& state) {
  AttendTiles(kernels, p, queries, 0, Tiles(p), visible, state);
}

/// The tokens of a tile that exist.
uint64_t Existing(const Problem& p, uint32_t tile) {
  const uint32_t tokens = std::min(kTileTokens, (p.blocks - tile * kTileBlocks) * kPageTokens);
  return tokens == kTileTokens ? ~uint64_t{0} : (uint64_t{1} << tokens) - 1;
}

/// What each token sees of each tile: all, nothing, a range, or any tokens.
std::vector<uint64_t> RandomVisible(const Problem& p, uint32_t tokens, Prng& prng) {
  std::vector<uint64_t> out(Tiles(p) * tokens);
  for (uint32_t i = 0; i < out.size(); ++i) {
    uint64_t bits = ~uint64_t{0};
    const uint64_t kind = prng.Below(5);
    if (kind == 1) bits = 0;
    if (kind == 2) bits = ~uint64_t{0} << prng.Below(kTileTokens);
    if (kind == 3) bits = ~uint64_t{0} >> prng.Below(kTileTokens);
    if (kind == 4) bits = prng.Next() & prng.Next();
    out[i] = bits & Existing(p, i / tokens);
  }
  return out;
}

/// Fills every slot that no row sees with what a reused page may hold.
void SpoilHiddenSlots(Problem& p, const std::vector<uint64_t>& visible, uint32_t tokens, Prng& prng) {
  constexpr uint16_t kGarbage[] = {0x7e00, 0xfc00, 0x7c00, 0xffff, 0x7bff};
  for (uint32_t slot = 0; slot < p.blocks * kPageTokens; ++slot) {
    const uint32_t tile = slot / kTileTokens, b = slot / kPageTokens, t = slot % kPageTokens;
    bool seen = false;
    for (uint32_t r = 0; r < tokens; ++r) seen |= (visible[tile * tokens + r] >> slot % kTileTokens & 1) != 0;
    if (seen) continue;
    for (uint32_t i = 0; i < p.key_dim; ++i) p.KeyPage(b)[i * kPageTokens + t] = kGarbage[prng.Below(5)];
    for (uint32_t i = 0; i < p.value_dim; ++i) p.ValuePage(b)[t * p.value_dim + i] = kGarbage[prng.Below(5)];
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
        const float softcap = tokens % 2 == 0 ? 5.0f : 0.0f;
        Problem p(d.key, d.value, 6, prng);
        const uint32_t rows = tokens * group;
        std::vector<float> queries = RandomRow(Numbers::kPlain, size_t{rows} * d.key, prng);
        std::vector<uint64_t> visible = RandomVisible(p, tokens, prng);
        SpoilHiddenSlots(p, visible, tokens, prng);
        State expected(rows, p, softcap, group);
        AttendAll(KernelsFor(Isa::kReference), p, queries, visible, expected);
        for (Isa isa : IsasOfReferenceBits()) {
          State got(rows, p, softcap, group);
          AttendAll(KernelsFor(isa), p, queries, visible, got);
          ASSERT_EQ(Difference(got.All(), expected.All()), "") << IsaName(isa) << " key " << d.key << " rows " << rows;
          ASSERT_EQ(Difference(got.Finish(KernelsFor(isa)), expected.Finish(KernelsFor(Isa::kReference))), "")
              << IsaName(isa);
        }
      }
    }
  }
}

// Queries of any magnitude: saturated scores, infinities and NaN take the same way everywhere.
TEST(AttendTest, WildQueriesEqualTheReference) {
  Prng prng(2);
  for (Numbers numbers : {Numbers::kWild, Numbers::kBroken}) {
    for (int i = 0; i < 50; ++i) {
      Problem p(32, 32, 5, prng);
      uint32_t rows = 12;
      std::vector<float> queries = RandomRow(numbers, rows * 32, prng);
      std::vector<uint64_t> visible = RandomVisible(p, rows, prng);
      State expected(rows, p);
      AttendAll(KernelsFor(Isa::kReference), p, queries, visible, expected);
      for (Isa isa : IsasOfReferenceBits()) {
        State got(rows, p);
        AttendAll(KernelsFor(isa), p, queries, visible, got);
        ASSERT_EQ(Difference(got.All(), expected.All()), "") << IsaName(isa) << " round " << i;
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
  for (float softcap : {0.0f, 3.0f}) {
    uint32_t rows = 21, dim = 64, value_dim = 48;
    Problem p(dim, value_dim, 18, prng);
    std::vector<float> queries = RandomRow(Numbers::kPlain, rows * dim, prng);
    for (float& q : queries) q /= 4;
    std::vector<uint64_t> visible = RandomVisible(p, rows, prng);
    SpoilHiddenSlots(p, visible, rows, prng);
    for (Isa isa : SupportedIsas()) {
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
  uint32_t rows = 23, dim = 80;
  Problem p(dim, dim, 9, prng);
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
      ASSERT_EQ(Difference(alone.Finish(KernelsFor(isa)), expected), "") << IsaName(isa) << " row " << r;
    }
  }
}

// Sums of two parts of a view, merged: near the whole in one go, and the same bits on every instruction set.
TEST(AttendTest, PartsMerge) {
  Prng prng(6);
  uint32_t rows = 9, dim = 40;
  Problem p(dim, dim, 16, prng);
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
  Problem p(dim, dim, 4, prng);
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
      KernelsFor(isa).store_key(row.data(), width, 3, keys.data());
      KernelsFor(isa).store_value(row.data(), width, 3, values.data());
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

}  // namespace
}  // namespace kvist::kernels
