#include "attention/dense.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

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

/// A view of `blocks` blocks, some of them only in part, with queries for its last tokens.
struct Problem {
  std::vector<std::vector<DenseScratch::Line>> frames;
  std::vector<ViewBlock> view;
  std::vector<std::vector<float>> keys, values;  ///< By view index, as the pages keep them.
  std::vector<float> queries;                    ///< [tokens][kGroup * kKeyDim]
  uint32_t tokens;
  KvType type;

  Problem(KvType kv_type, uint32_t blocks, uint32_t query_tokens, Prng& prng) : tokens(query_tokens), type(kv_type) {
    const kernels::KernelTable& k = kernels::KernelsFor(kernels::Isa::kReference);
    const size_t page_bytes = KvKeyPageBytes(type, kKeyDim) + KvValuePageBytes(type, kValueDim);
    for (uint32_t b = 0; b < blocks; ++b) {
      frames.emplace_back((page_bytes + 63) / 64);
      std::byte* page = frames.back().data()->bytes;
      std::byte* value_page = page + KvKeyPageBytes(type, kKeyDim);
      ViewBlock block{frames.back().data()->bytes, 0, kPageTokens};
      if (prng.Below(4) == 0) {
        block.begin = static_cast<uint16_t>(prng.Below(kPageTokens));
        block.count = static_cast<uint16_t>(1 + prng.Below(kPageTokens - block.begin));
      }
      std::memset(page, 0xff, page_bytes);  // NaN in slots that are not part of the view.
      for (uint32_t t = block.begin; t < block.begin + block.count; ++t) {
        std::vector<float> key(kKeyDim), value(kValueDim);
        for (float& x : key) x = Random(prng);
        for (float& x : value) x = Random(prng);
        k.store_key(type, key.data(), kKeyDim, t, page);
        k.store_value(type, value.data(), kValueDim, t, value_page);
        for (uint32_t i = 0; i < kKeyDim; ++i) key[i] = NumberAt(type, page, i * kPageTokens + t, t);
        for (uint32_t i = 0; i < kValueDim; ++i) value[i] = NumberAt(type, value_page, t * kValueDim + i, t);
        keys.push_back(key);
        values.push_back(value);
      }
      view.push_back(block);
    }
    queries.resize(size_t{tokens} * kGroup * kKeyDim);
    for (float& x : queries) x = 2 * Random(prng);
  }

  /// The queries from `first` on; `out` has their place in a [tokens] array.
  DenseTask Task(uint32_t first, uint32_t count, uint32_t window, float* out) const {
    const auto start = static_cast<uint32_t>(keys.size()) - tokens;
    return {.view = view,
            .query_index = start + first,
            .tokens = count,
            .queries = queries.data() + size_t{first} * kGroup * kKeyDim,
            .query_stride = kGroup * kKeyDim,
            .out = out + size_t{first} * kGroup * kValueDim,
            .out_stride = kGroup * kValueDim,
            .key_offset = 0,
            .value_offset = KvKeyPageBytes(type, kKeyDim),
            .group = kGroup,
            .key_dim = kKeyDim,
            .value_dim = kValueDim,
            .window = window,
            .scale = 0.5f,
            .kv_type = type};
  }

  /// Softmax over the allowed tokens in double.
  std::vector<double> Exact(uint32_t token, uint32_t head, uint32_t window) const {
    const size_t index = keys.size() - tokens + token;
    const float* query = &queries[(size_t{token} * kGroup + head) * kKeyDim];
    std::vector<double> out(kValueDim);
    double total = 0;
    for (size_t t = window != 0 && index + 1 > window ? index + 1 - window : 0; t <= index; ++t) {
      double score = 0;
      for (uint32_t i = 0; i < kKeyDim; ++i) score += static_cast<double>(query[i]) * keys[t][i];
      const double weight = std::exp(0.5 * score);
      total += weight;
      for (uint32_t i = 0; i < kValueDim; ++i) out[i] += weight * values[t][i];
    }
    for (double& x : out) x /= total;
    return out;
  }
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(AttendDenseTest, IsNearAPlainSoftmaxInDouble) {
  Prng prng(1);
  for (const kernels::Isa isa : kernels::SupportedIsas()) {
    for (const uint32_t window : {0u, 1u, 100u, 700u}) {
      const Problem p(kTypes[window / 100 % 2], 3 * kSectionBlocks + 5, 37, prng);
      std::vector<float> out(p.tokens * kGroup * kValueDim);
      DenseScratch scratch;
      AttendDense(kernels::KernelsFor(isa), p.Task(0, p.tokens, window, out.data()), scratch);
      for (uint32_t t = 0; t < p.tokens; t += 6) {
        for (uint32_t head = 0; head < kGroup; ++head) {
          const std::vector<double> exact = p.Exact(t, head, window);
          for (uint32_t i = 0; i < kValueDim; ++i) {
            ASSERT_NEAR(out[(t * kGroup + head) * kValueDim + i], exact[i], 1e-4)
                << kernels::IsaName(isa) << " window " << window;
          }
        }
      }
    }
  }
}

// One token at a time, its sections summed up apart: the bits of the whole run at once.
TEST(AttendDenseTest, SectionsApartAndTokensAloneGiveTheSameBits) {
  Prng prng(2);
  for (const kernels::Isa isa : kernels::SupportedIsas()) {
    const kernels::KernelTable& kernels = kernels::KernelsFor(isa);
    uint32_t run = 0;
    for (const uint32_t window : {0u, 0u, 600u, 700u}) {
      const KvType type = kTypes[run++ % 2];
      const Problem p(type, 2 * kSectionBlocks + 9, 21, prng);
      std::vector<float> together(p.tokens * kGroup * kValueDim), alone(together.size()), apart(together.size());
      DenseScratch scratch;
      AttendDense(kernels, p.Task(0, p.tokens, window, together.data()), scratch);
      for (uint32_t t = 0; t < p.tokens; ++t) {
        AttendDense(kernels, p.Task(t, 1, window, alone.data()), scratch);
        const DenseTask task = p.Task(t, 1, window, apart.data());
        const uint32_t sections = SectionsOf(task.view.size());
        ASSERT_EQ(sections, 3);
        std::vector<float> sums(sections * SumsFloats(task.Shape()));
        std::vector<uint32_t> starts(sections);
        for (uint32_t b = 0; b < (sections - 1) * kSectionBlocks; ++b) {
          for (uint32_t s = b / kSectionBlocks + 1; s < sections; ++s) starts[s] += task.view[b].count;
        }
        for (uint32_t s = sections; s-- > 0;) {
          AttendSection(kernels, task, s, starts[s], scratch, sums.data() + s * SumsFloats(task.Shape()));
        }
        MergeSections(kernels, task, sums.data());
      }
      EXPECT_TRUE(SameBits(alone, together)) << kernels::IsaName(isa) << " window " << window;
      EXPECT_TRUE(SameBits(apart, together)) << kernels::IsaName(isa) << " window " << window;
    }
  }
}

}  // namespace
}  // namespace kvist::attention
