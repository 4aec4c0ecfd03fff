#include "attention/dense.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "base/prng.h"
#include "kernels/dispatch.h"
#include "tensor/half.h"

namespace kvist::attention {
namespace {

constexpr uint32_t kGroup = 3, kKeyDim = 24, kValueDim = 40;
constexpr uint32_t kPageTokens = kernels::kPageTokens;

float Random(Prng& prng) {
  return static_cast<float>(2 * prng.Uniform() - 1);
}

constexpr KvType kTypes[] = {KvType::kF16, KvType::kQ8};

/// A number of a page as f32.
float NumberAt(KvType type, const std::byte* page, size_t index, uint32_t slot) {
  if (type == KvType::kF16) return F16ToF32(reinterpret_cast<const uint16_t*>(page)[index]);
  return static_cast<float>(reinterpret_cast<const int8_t*>(page + kKvScaleBytes)[index]) *
         reinterpret_cast<const float*>(page)[slot];
}

/// Rotations of the first `dims` dimensions of a head.
struct Rotary {
  uint32_t dims;
  kernels::RopePairs pairs;

  static double Frequency(uint32_t pair) { return std::pow(100.0, -0.3 * pair); }

  /// f32 tables for queries, as an executor makes them.
  void Tables(std::span<const int32_t> shifts, std::vector<float>& cos, std::vector<float>& sin) const {
    for (const int32_t shift : shifts) {
      for (uint32_t i = 0; i < dims / 2; ++i) {
        cos.push_back(static_cast<float>(std::cos(-shift * Frequency(i))));
        sin.push_back(static_cast<float>(std::sin(-shift * Frequency(i))));
      }
    }
  }

  /// A key at another position, in double.
  std::vector<double> Moved(const std::vector<float>& key, int32_t shift) const {
    std::vector<double> out(key.begin(), key.end());
    for (uint32_t i = 0; i < dims / 2; ++i) {
      const bool halves = pairs == kernels::RopePairs::kHalves;
      const size_t a = halves ? i : 2 * i, b = halves ? i + dims / 2 : 2 * i + 1;
      const double angle = shift * Frequency(i);
      out[a] = key[a] * std::cos(angle) - key[b] * std::sin(angle);
      out[b] = key[b] * std::cos(angle) + key[a] * std::sin(angle);
    }
    return out;
  }
};

constexpr Rotary kPlain{0, kernels::RopePairs::kHalves};
constexpr int32_t kShifts[] = {0, -1, 37, -30000};

/// A view of `blocks` parts of blocks, some of them with holes, with queries for its last tokens. With rotations, the
/// parts are shifted in turns.
struct Problem {
  std::vector<std::vector<DenseScratch::Line>> frames;
  std::vector<ViewBlock> view;
  std::vector<std::vector<float>> keys, values;  ///< By view index, as the pages keep them.
  std::vector<int32_t> shifts;                   ///< By view index.
  std::vector<float> queries;                    ///< [tokens][kGroup * kKeyDim]
  uint32_t tokens;
  KvType type;
  Rotary rotary;
  std::vector<float> cos, sin;

  Problem(KvType kv_type, uint32_t blocks, uint32_t query_tokens, Prng& prng, const Rotary& rotation = kPlain)
      : tokens(query_tokens), type(kv_type), rotary(rotation) {
    rotary.Tables(kShifts, cos, sin);
    uint32_t turn = 0;
    while (view.size() < blocks) {
      frames.emplace_back((KvKeyPageBytes(type, kKeyDim) + KvValuePageBytes(type, kValueDim) + 63) / 64);
      std::byte* frame = frames.back().data()->bytes;
      std::memset(frame, 0xff, frames.back().size() * 64);  // NaN in slots that are not part of the view.
      const auto add = [&](uint32_t begin, uint32_t end) {
        if (rotary.dims > 0 && prng.Below(3) == 0) turn = static_cast<uint32_t>(prng.Below(std::size(kShifts)));
        Add(frame, begin, end, turn, prng);
      };
      if (prng.Below(4) != 0) {
        add(0, kPageTokens);
        continue;
      }
      const auto begin = static_cast<uint32_t>(prng.Below(kPageTokens));
      const auto end = static_cast<uint32_t>(begin + 1 + prng.Below(kPageTokens - begin));
      add(begin, end);
      if (end < kPageTokens) add(end + (end + 1 < kPageTokens ? prng.Below(2) : 0), kPageTokens);
    }
    queries.resize(size_t{tokens} * kGroup * kKeyDim);
    for (float& x : queries) x = 2 * Random(prng);
  }

  void Add(std::byte* frame, uint32_t begin, uint32_t end, uint32_t turn, Prng& prng) {
    const kernels::KernelTable& k = kernels::KernelsFor(kernels::Isa::kReference);
    std::byte* value_page = frame + KvKeyPageBytes(type, kKeyDim);
    for (uint32_t t = begin; t < end; ++t) {
      std::vector<float> key(kKeyDim), value(kValueDim);
      for (float& x : key) x = Random(prng);
      for (float& x : value) x = Random(prng);
      k.store_key(type, key.data(), kKeyDim, t, frame);
      k.store_value(type, value.data(), kValueDim, t, value_page);
      for (uint32_t i = 0; i < kKeyDim; ++i) key[i] = NumberAt(type, frame, i * kPageTokens + t, t);
      for (uint32_t i = 0; i < kValueDim; ++i) value[i] = NumberAt(type, value_page, t * kValueDim + i, t);
      keys.push_back(key);
      values.push_back(value);
      shifts.push_back(kShifts[turn]);
    }
    view.push_back({.frame = frame,
                    .begin = static_cast<uint8_t>(begin),
                    .count = static_cast<uint8_t>(end - begin),
                    .turn = turn});
  }

  HeadView Head(uint32_t window) const {
    return {.view = view,
            .key_offset = 0,
            .value_offset = KvKeyPageBytes(type, kKeyDim),
            .group = kGroup,
            .key_dim = kKeyDim,
            .value_dim = kValueDim,
            .window = window,
            .scale = 0.5f,
            .kv_type = type,
            .turns = {cos.data(), sin.data(), rotary.dims, rotary.pairs}};
  }

  /// View index of query `token`.
  uint32_t IndexOf(uint32_t token) const { return static_cast<uint32_t>(keys.size()) - tokens + token; }
  const float* QueryOf(uint32_t token) const { return queries.data() + size_t{token} * kGroup * kKeyDim; }

  /// The queries from `first` on; `out` has their place in a [tokens] array.
  DenseTask Task(uint32_t first, uint32_t count, uint32_t window, float* out) const {
    return {.head = Head(window),
            .query_index = IndexOf(first),
            .tokens = count,
            .queries = QueryOf(first),
            .query_stride = kGroup * kKeyDim,
            .out = out + size_t{first} * kGroup * kValueDim,
            .out_stride = kGroup * kValueDim};
  }

  /// Softmax over the allowed tokens in double, their keys rotated to where the view has them: [tokens of the view].
  std::vector<double> Weights(uint32_t token, uint32_t head, uint32_t window) const {
    const size_t index = IndexOf(token);
    const float* query = QueryOf(token) + size_t{head} * kKeyDim;
    std::vector<double> weights(keys.size());
    double total = 0;
    for (size_t t = window != 0 && index + 1 > window ? index + 1 - window : 0; t <= index; ++t) {
      const std::vector<double> key = rotary.Moved(keys[t], shifts[t]);
      double score = 0;
      for (uint32_t i = 0; i < kKeyDim; ++i) score += static_cast<double>(query[i]) * key[i];
      total += weights[t] = std::exp(0.5 * score);
    }
    for (double& weight : weights) weight /= total;
    return weights;
  }

  std::vector<double> Exact(uint32_t token, uint32_t head, uint32_t window) const {
    const std::vector<double> weights = Weights(token, head, window);
    std::vector<double> out(kValueDim);
    for (size_t t = 0; t < weights.size(); ++t) {
      for (uint32_t i = 0; i < kValueDim; ++i) out[i] += weights[t] * values[t][i];
    }
    return out;
  }

  /// View index at which each section starts.
  std::vector<uint32_t> SectionStarts() const {
    std::vector<uint32_t> starts(SectionsOf(view.size()));
    for (uint32_t b = 0; b < view.size(); ++b) {
      for (uint32_t s = b / kSectionBlocks + 1; s < starts.size(); ++s) starts[s] += view[b].count;
    }
    return starts;
  }
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void ExpectNearExact(const Problem& p, kernels::Isa isa, uint32_t window) {
  std::vector<float> out(p.tokens * kGroup * kValueDim);
  DenseScratch scratch;
  AttendDense(kernels::KernelsFor(isa), p.Task(0, p.tokens, window, out.data()), scratch);
  for (uint32_t t = 0; t < p.tokens; t += 6) {
    for (uint32_t head = 0; head < kGroup; ++head) {
      const std::vector<double> exact = p.Exact(t, head, window);
      for (uint32_t i = 0; i < kValueDim; ++i) {
        ASSERT_NEAR(out[(t * kGroup + head) * kValueDim + i], exact[i], 1e-4)
            << kernels::IsaName(isa) << " window " << window << " rotary " << p.rotary.dims;
      }
    }
  }
}

TEST(AttendDenseTest, IsNearAPlainSoftmaxInDouble) {
  Prng prng(1);
  for (const kernels::Isa isa : kernels::SupportedIsas()) {
    for (const uint32_t window : {0u, 1u, 100u, 700u}) {
      ExpectNearExact(Problem(kTypes[window / 100 % 2], 3 * kSectionBlocks + 5, 37, prng), isa, window);
    }
  }
}

constexpr Rotary kRotaries[] = {{kKeyDim, kernels::RopePairs::kHalves},
                                {kKeyDim, kernels::RopePairs::kAdjacent},
                                {16, kernels::RopePairs::kHalves},
                                {8, kernels::RopePairs::kAdjacent}};

// Turning f32 queries costs what rounding them again does: within the same 1e-4.
TEST(AttendDenseTest, ShiftedBlocksAreNearRotatedKeysInDouble) {
  Prng prng(3);
  for (const kernels::Isa isa : kernels::SupportedIsas()) {
    for (const Rotary& rotary : kRotaries) {
      for (const uint32_t window : {0u, 100u, 700u}) {
        for (const KvType type : kTypes) {
          ExpectNearExact(Problem(type, kSectionBlocks + 15, 19, prng, rotary), isa, window);
        }
      }
    }
  }
}

// A layer without rotary positions does not care where its keys are.
TEST(AttendDenseTest, WithoutRotaryPositionsTurnsChangeNoBit) {
  Prng prng(4);
  for (const kernels::Isa isa : kernels::SupportedIsas()) {
    Problem p(KvType::kF16, kSectionBlocks + 3, 5, prng);
    std::vector<float> plain(p.tokens * kGroup * kValueDim), turned(plain.size());
    DenseScratch scratch;
    AttendDense(kernels::KernelsFor(isa), p.Task(0, p.tokens, 0, plain.data()), scratch);
    for (size_t b = 0; b < p.view.size(); ++b) p.view[b].turn = b % 3;
    AttendDense(kernels::KernelsFor(isa), p.Task(0, p.tokens, 0, turned.data()), scratch);
    EXPECT_TRUE(SameBits(plain, turned)) << kernels::IsaName(isa);
  }
}

// One token at a time, its sections summed up apart: the bits of the whole run at once.
TEST(AttendDenseTest, SectionsApartAndTokensAloneGiveTheSameBits) {
  Prng prng(2);
  for (const kernels::Isa isa : kernels::SupportedIsas()) {
    const kernels::KernelTable& kernels = kernels::KernelsFor(isa);
    uint32_t run = 0;
    for (const uint32_t window : {0u, 0u, 0u, 0u, 600u, 700u, 50u, 300u}) {
      const KvType type = kTypes[run % 2];
      const Problem p(type, 2 * kSectionBlocks + 9, 21, prng, run % 4 < 2 ? kPlain : kRotaries[run / 2 % 4]);
      ++run;
      std::vector<float> together(p.tokens * kGroup * kValueDim), alone(together.size()), apart(together.size());
      DenseScratch scratch;
      AttendDense(kernels, p.Task(0, p.tokens, window, together.data()), scratch);
      const HeadView head = p.Head(window);
      const std::vector<uint32_t> starts = p.SectionStarts();
      ASSERT_EQ(starts.size(), 3);
      for (uint32_t t = 0; t < p.tokens; ++t) {
        AttendDense(kernels, p.Task(t, 1, window, alone.data()), scratch);
        const Reader reader{p.QueryOf(t), p.IndexOf(t)};
        const size_t floats = SumsFloats(head.Shape(1));
        std::vector<float> sums(starts.size() * floats);
        std::vector<SectionSums> sections(starts.size());
        for (uint32_t s = static_cast<uint32_t>(starts.size()); s-- > 0;) {
          sections[s].sums = sums.data() + s * floats;
          AttendSection(kernels, head, {&reader, 1}, s, starts[s], scratch, sections[s].sums);
        }
        MergeSections(kernels, head, sections, apart.data() + size_t{t} * kGroup * kValueDim);
      }
      EXPECT_TRUE(SameBits(alone, together)) << kernels::IsaName(isa) << " window " << window;
      EXPECT_TRUE(SameBits(apart, together)) << kernels::IsaName(isa) << " window " << window;
    }
  }
}

// Sequences that begin alike and end differently: whoever reads the beginning together, the bits stay.
TEST(AttendDenseTest, ReadersOfOneSectionGetTheBitsOfReadingAlone) {
  Prng prng(5);
  for (const kernels::Isa isa : kernels::SupportedIsas()) {
    const kernels::KernelTable& kernels = kernels::KernelsFor(isa);
    for (const uint32_t count : {2u, 3u, 7u, 16u, 40u}) {
      for (const uint32_t window : {0u, 40u, 330u}) {
        const Problem p(kTypes[count % 2], kSectionBlocks, count, prng, count == 3 ? kPlain : kRotaries[count % 4]);
        const Problem ends(p.type, 3, 1, prng);
        const auto begun = static_cast<uint32_t>(p.keys.size());
        const std::vector<uint32_t> starts = p.SectionStarts();
        const uint32_t second = starts.size() > 1 ? starts[1] : begun;
        const HeadView head = p.Head(window);
        DenseScratch scratch;
        std::vector<Reader> readers;
        for (uint32_t r = 0; r < count; ++r) readers.push_back({p.QueryOf(r), begun + r % 20});
        std::vector<float> first(SumsFloats(head.Shape(count)));
        AttendSection(kernels, head, readers, 0, 0, scratch, first.data());
        std::vector<float> together(count * kGroup * kValueDim), alone(together.size());
        for (uint32_t r = 0; r < count; ++r) {
          HeadView own = head;
          std::vector<ViewBlock> view = p.view;
          view.insert(view.end(), ends.view.begin(), ends.view.end());
          own.view = view;
          float* out = alone.data() + size_t{r} * kGroup * kValueDim;
          AttendDense(kernels,
                      {.head = own,
                       .query_index = readers[r].query_index,
                       .tokens = 1,
                       .queries = readers[r].queries,
                       .query_stride = 0,
                       .out = out,
                       .out_stride = 0},
                      scratch);
          std::vector<float> last(SumsFloats(own.Shape(1)));
          AttendSection(kernels, own, {&readers[r], 1}, 1, second, scratch, last.data());
          const SectionSums sections[] = {{first.data(), count, r}, {last.data(), 1, 0}};
          MergeSections(kernels, own, sections, together.data() + size_t{r} * kGroup * kValueDim);
        }
        EXPECT_TRUE(SameBits(alone, together)) << kernels::IsaName(isa) << " " << count << " window " << window;
      }
    }
  }
}

/// Shares of what the last query pays to each of `parts` pieces of the view: [parts][kGroup].
std::vector<ScoreSum> SharesOf(const kernels::KernelTable& kernels, const Problem& p, const HeadView& head,
                               uint32_t parts, std::vector<uint32_t>& starts) {
  std::vector<ScoreSum> sums(size_t{parts} * kGroup);
  DenseScratch scratch;
  uint32_t start = 0;
  size_t first = 0;
  for (uint32_t part = 0; part < parts; ++part) {
    const size_t end = head.view.size() * (part + 1) / parts;
    HeadView piece = head;
    piece.view = head.view.subspan(first, end - first);
    SumScores(kernels, piece, {p.QueryOf(p.tokens - 1), p.IndexOf(p.tokens - 1) - start}, scratch,
              sums.data() + size_t{part} * kGroup);
    starts.push_back(start);
    for (; first < end; ++first) start += head.view[first].count;
  }
  starts.push_back(start);
  ShareScores(kernels, kGroup, sums, scratch);
  return sums;
}

TEST(ScoreSharesTest, AreThoseOfASoftmaxInDoubleAndTheSameOverSplitBlocks) {
  Prng prng(6);
  for (const kernels::Isa isa : kernels::SupportedIsas()) {
    for (const uint32_t window : {0u, 100u}) {
      for (const KvType type : kTypes) {
        constexpr uint32_t kParts = 7;
        const Problem p(type, kSectionBlocks + 15, 1, prng, kRotaries[window / 100]);
        const HeadView head = p.Head(window);
        std::vector<uint32_t> starts, again;
        const std::vector<ScoreSum> shares = SharesOf(kernels::KernelsFor(isa), p, head, kParts, starts);
        for (uint32_t g = 0; g < kGroup; ++g) {
          const std::vector<double> weights = p.Weights(0, g, window);
          for (uint32_t part = 0; part < kParts; ++part) {
            const double exact =
                std::accumulate(weights.begin() + starts[part], weights.begin() + starts[part + 1], 0.0);
            EXPECT_NEAR(shares[part * kGroup + g].sum, exact, 1e-5) << kernels::IsaName(isa) << " window " << window;
          }
        }
        std::vector<const std::byte*> pages;
        std::vector<ViewBlock> view = p.view;
        for (ViewBlock& block : view) {
          pages.push_back(nullptr);  // Another head's.
          pages.push_back(head.KeysOf(block));
          pages.push_back(head.ValuesOf(block));
          block.frame = nullptr;
          block.pages = static_cast<uint16_t>(pages.size() / 3);
        }
        HeadView split = head;
        split.view = view;
        split.split = {.pages = pages.data(), .per_block = 3, .key = 1, .value = 2};
        const std::vector<ScoreSum> same = SharesOf(kernels::KernelsFor(isa), p, split, kParts, again);
        for (size_t i = 0; i < shares.size(); ++i) EXPECT_EQ(same[i].sum, shares[i].sum);
      }
    }
  }
}

}  // namespace
}  // namespace kvist::attention
