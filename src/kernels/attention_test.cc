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
using testing::FastIsas;
using testing::Numbers;
using testing::RandomRow;

constexpr float kInf = std::numeric_limits<float>::infinity();

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

/// Running state of a set of query rows.
struct State {
  std::vector<float> max, sum, acc;

  State(uint32_t rows, uint32_t value_dim) : max(rows, -kInf), sum(rows, 0), acc(size_t{rows} * value_dim, 0) {}

  std::vector<float> All() const {
    std::vector<float> all = max;
    all.insert(all.end(), sum.begin(), sum.end());
    all.insert(all.end(), acc.begin(), acc.end());
    return all;
  }
};

/// Attends to every block; `visible` is [blocks][rows].
void AttendAll(const KernelTable& kernels, Problem& p, const std::vector<float>& queries, uint32_t rows, float softcap,
               const std::vector<VisibleTokens>& visible, State& state) {
  for (uint32_t b = 0; b < p.blocks; ++b) {
    kernels.attend_block({p.KeyPage(b), p.ValuePage(b), p.key_dim, p.value_dim, rows, queries.data(), p.key_dim,
                          visible.data() + b * rows, softcap, state.max.data(), state.sum.data(), state.acc.data(),
                          p.value_dim});
  }
}

std::vector<VisibleTokens> RandomRanges(uint32_t count, Prng& prng) {
  std::vector<VisibleTokens> out(count);
  for (VisibleTokens& v : out) {
    v = {0, kPageTokens};
    if (prng.Below(2) == 0) continue;
    v.begin = static_cast<uint8_t>(prng.Below(kPageTokens));
    v.end = static_cast<uint8_t>(prng.Below(kPageTokens + 1));
  }
  return out;
}

/// Fills every slot that no row sees with what a reused page may hold.
void SpoilHiddenSlots(Problem& p, const std::vector<VisibleTokens>& visible, uint32_t rows, Prng& prng) {
  constexpr uint16_t kGarbage[] = {0x7e00, 0xfc00, 0x7c00, 0xffff, 0x7bff};
  for (uint32_t b = 0; b < p.blocks; ++b) {
    for (uint32_t t = 0; t < kPageTokens; ++t) {
      bool seen = false;
      for (uint32_t r = 0; r < rows; ++r) {
        VisibleTokens v = visible[b * rows + r];
        seen = seen || (v.begin <= t && t < v.end);
      }
      if (seen) continue;
      for (uint32_t i = 0; i < p.key_dim; ++i) p.KeyPage(b)[i * kPageTokens + t] = kGarbage[prng.Below(5)];
      for (uint32_t i = 0; i < p.value_dim; ++i) p.ValuePage(b)[t * p.value_dim + i] = kGarbage[prng.Below(5)];
    }
  }
}

TEST(AttendTest, EveryInstructionSetEqualsTheReference) {
  Prng prng(1);
  struct Dims {
    uint32_t key, value;
  };
  for (Dims d : {Dims{64, 64}, Dims{128, 128}, Dims{1, 1}, Dims{3, 5}, Dims{16, 24}, Dims{72, 40}, Dims{256, 256},
                 Dims{kHeadDimMax, kHeadDimMax}, Dims{192, 128}}) {
    for (uint32_t rows = 1; rows <= 21; rows += rows < 10 ? 1 : 11) {
      for (float softcap : {0.0f, 5.0f}) {
        Problem p(d.key, d.value, 3, prng);
        std::vector<float> queries = RandomRow(Numbers::kPlain, size_t{rows} * d.key, prng);
        std::vector<VisibleTokens> visible = RandomRanges(3 * rows, prng);
        SpoilHiddenSlots(p, visible, rows, prng);
        State expected(rows, d.value);
        AttendAll(KernelsFor(Isa::kReference), p, queries, rows, softcap, visible, expected);
        for (Isa isa : FastIsas()) {
          State got(rows, d.value);
          AttendAll(KernelsFor(isa), p, queries, rows, softcap, visible, got);
          ASSERT_EQ(Difference(got.All(), expected.All()), "") << IsaName(isa) << " key " << d.key << " rows " << rows;
          std::vector<float> y(got.acc.size()), y_expected(got.acc.size());
          KernelsFor(isa).attend_finish(got.acc.data(), d.value, got.sum.data(), rows, d.value, y.data(), d.value);
          KernelsFor(Isa::kReference)
              .attend_finish(got.acc.data(), d.value, got.sum.data(), rows, d.value, y_expected.data(), d.value);
          ASSERT_EQ(Difference(y, y_expected), "") << IsaName(isa);
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
      Problem p(32, 32, 2, prng);
      uint32_t rows = 12;
      std::vector<float> queries = RandomRow(numbers, rows * 32, prng);
      std::vector<VisibleTokens> visible = RandomRanges(2 * rows, prng);
      State expected(rows, 32);
      AttendAll(KernelsFor(Isa::kReference), p, queries, rows, 0, visible, expected);
      for (Isa isa : FastIsas()) {
        State got(rows, 32);
        AttendAll(KernelsFor(isa), p, queries, rows, 0, visible, got);
        ASSERT_EQ(Difference(got.All(), expected.All()), "") << IsaName(isa) << " round " << i;
      }
    }
  }
}

TEST(AttendTest, ReferenceIsNearAPlainSoftmaxInDouble) {
  Prng prng(3);
  for (float softcap : {0.0f, 3.0f}) {
    uint32_t rows = 5, dim = 64, value_dim = 48;
    Problem p(dim, value_dim, 8, prng);
    std::vector<float> queries = RandomRow(Numbers::kPlain, rows * dim, prng);
    for (float& q : queries) q /= 4;
    std::vector<VisibleTokens> visible = RandomRanges(p.blocks * rows, prng);
    State state(rows, value_dim);
    AttendAll(KernelsFor(Isa::kReference), p, queries, rows, softcap, visible, state);
    std::vector<float> y(rows * value_dim);
    KernelsFor(Isa::kReference)
        .attend_finish(state.acc.data(), value_dim, state.sum.data(), rows, value_dim, y.data(), value_dim);
    for (uint32_t r = 0; r < rows; ++r) {
      double total = 0;
      std::vector<double> exact(value_dim);
      for (uint32_t b = 0; b < p.blocks; ++b) {
        VisibleTokens v = visible[b * rows + r];
        for (uint32_t t = b * kPageTokens + v.begin; t < b * kPageTokens + v.end; ++t) {
          double score = 0;
          for (uint32_t i = 0; i < dim; ++i) score += static_cast<double>(queries[r * dim + i]) * p.keys[t * dim + i];
          if (softcap > 0) score = softcap * std::tanh(score / softcap);
          double weight = std::exp(score);
          total += weight;
          for (uint32_t i = 0; i < value_dim; ++i) exact[i] += weight * p.values[t * value_dim + i];
        }
      }
      ASSERT_GT(total, 0);
      for (uint32_t i = 0; i < value_dim; ++i) ASSERT_NEAR(y[r * value_dim + i], exact[i] / total, 2e-6) << "row " << r;
    }
  }
}

// A query row has the same bits alone as among others, whatever they see.
TEST(AttendTest, ARowHasTheSameBitsAloneAndInABatch) {
  Prng prng(4);
  uint32_t rows = 23, dim = 80, blocks = 4;
  Problem p(dim, dim, blocks, prng);
  std::vector<float> queries = RandomRow(Numbers::kPlain, rows * dim, prng);
  std::vector<VisibleTokens> visible = RandomRanges(blocks * rows, prng);
  for (Isa isa : SupportedIsas()) {
    State batch(rows, dim);
    AttendAll(KernelsFor(isa), p, queries, rows, 0, visible, batch);
    for (uint32_t r = 0; r < rows; ++r) {
      std::vector<float> query(queries.begin() + r * dim, queries.begin() + (r + 1) * dim);
      std::vector<VisibleTokens> ranges;
      for (uint32_t b = 0; b < blocks; ++b) ranges.push_back(visible[b * rows + r]);
      State alone(1, dim);
      AttendAll(KernelsFor(isa), p, query, 1, 0, ranges, alone);
      State from_batch(1, dim);
      from_batch.max[0] = batch.max[r];
      from_batch.sum[0] = batch.sum[r];
      std::copy_n(batch.acc.begin() + r * dim, dim, from_batch.acc.begin());
      ASSERT_EQ(Difference(alone.All(), from_batch.All()), "") << IsaName(isa) << " row " << r;
    }
  }
}

TEST(AttendTest, RowsThatSeeNothingStayAsTheyAreAndEndAsZero) {
  Prng prng(5);
  uint32_t dim = 32;
  Problem p(dim, dim, 1, prng);
  std::vector<float> queries = RandomRow(Numbers::kPlain, 3 * dim, prng);
  std::vector<VisibleTokens> visible = {{0, 16}, {5, 5}, {9, 3}};
  for (Isa isa : SupportedIsas()) {
    State state(3, dim);
    AttendAll(KernelsFor(isa), p, queries, 3, 0, visible, state);
    std::vector<float> y(3 * dim, 1);
    KernelsFor(isa).attend_finish(state.acc.data(), dim, state.sum.data(), 3, dim, y.data(), dim);
    EXPECT_NE(y[0], 0);
    for (uint32_t r : {1u, 2u}) {
      EXPECT_EQ(state.max[r], -kInf);
      EXPECT_EQ(state.sum[r], 0);
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
