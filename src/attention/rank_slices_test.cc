// Tensor parallelism with simulated ranks: each keeps the pages of its own KV heads in frames of its own, and attends
// with their queries. Side by side the ranks' outputs are what one device gets, bit for bit.

#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "attention/dense.h"
#include "base/prng.h"
#include "kernels/dispatch.h"
#include "kv/frame_arena.h"
#include "kv/kv_memory.h"

namespace kvist::attention {
namespace {

constexpr uint32_t kLayers = 2, kQueryGroup = 4, kWidth = 64, kTokens = 90, kQueries = 7;

/// What a model computes for some layer: the same whoever keeps it.
struct Numbers {
  explicit Numbers(uint32_t kv_heads) : heads(kv_heads) {
    Prng prng(kv_heads);
    for (std::vector<float>* rows : {&keys, &values}) rows->resize(size_t{kTokens} * kLayers * heads * kWidth);
    queries.resize(size_t{kQueries} * kLayers * heads * kQueryGroup * kWidth);
    for (std::vector<float>* rows : {&keys, &values, &queries}) {
      for (float& x : *rows) x = static_cast<float>(2 * prng.Uniform() - 1);
    }
  }
  size_t Row(uint32_t token, uint32_t layer, uint32_t head) const {
    return ((size_t{token} * kLayers + layer) * heads + head) * kWidth;
  }
  uint32_t heads;
  std::vector<float> keys, values;  ///< [tokens][layers][heads][width]
  std::vector<float> queries;       ///< [queries][layers][heads][group * width]
};

/// One rank with its frames. Its memory is told what every other rank's is told.
class Rank {
 public:
  Rank(const kv::PageLayout& layout, uint32_t other_texts)
      : layout_(layout),
        memory_({.frames_count = 32, .layout = layout}),
        arena_(*kv::FrameArena::Create(32, layout.frame_bytes())) {
    const std::vector<TokenId> text(kTokens + 1, TokenId{3});
    for (uint32_t i = 0; i < other_texts; ++i) {  // So that frames are not those of the other ranks.
      memory_.Begin(RequestId{100 + i}, 100 + i, text);
      EXPECT_TRUE(memory_.Reserve(RequestId{100 + i}, 20));
    }
    memory_.Begin(kId, 0, text);
    EXPECT_TRUE(memory_.Reserve(kId, kTokens));
  }

  uint32_t heads() const { return layout_.kv_heads(); }
  uint64_t bytes() const { return memory_.BlocksOwn(kId) * layout_.frame_bytes(); }
  FrameId FrameOf(uint32_t block) const { return memory_.spans().FrameOf(memory_.SpanOf(kId), block); }

  void Store(const kernels::KernelTable& kernels, const Numbers& numbers) {
    for (uint32_t token = 0; token < kTokens; ++token) {
      std::byte* frame = arena_.Frame(FrameOf(token / kv::kBlockTokens));
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        for (uint32_t head = 0; head < heads(); ++head) {
          const size_t row = numbers.Row(token, layer, layout_.first_head() + head);
          const uint32_t slot = token % kv::kBlockTokens;
          kernels.store_key(layout_.type(), numbers.keys.data() + row, kWidth, slot,
                            frame + layout_.KeyOffset(layer, head));
          kernels.store_value(layout_.type(), numbers.values.data() + row, kWidth, slot,
                              frame + layout_.ValueOffset(layer, head));
        }
      }
    }
    memory_.Commit(kId, std::vector<TokenId>(kTokens, TokenId{3}));
  }

  /// @param out  [queries][all heads of the model * group * width]; this rank's part is written.
  void Attend(const kernels::KernelTable& kernels, const Numbers& numbers, uint32_t layer, std::vector<float>& out) {
    std::vector<ViewBlock> view;
    for (uint32_t begin = 0; begin < kTokens; begin += kv::kBlockTokens) {
      view.push_back({.frame = arena_.Frame(FrameOf(begin / kv::kBlockTokens)),
                      .count = static_cast<uint8_t>(std::min(kv::kBlockTokens, kTokens - begin))});
    }
    const size_t width = size_t{numbers.heads} * kQueryGroup * kWidth;
    DenseScratch scratch;
    for (uint32_t head = 0; head < heads(); ++head) {
      const size_t column = size_t{layout_.first_head() + head} * kQueryGroup * kWidth;
      AttendDense(kernels,
                  {.head = {.view = view,
                            .key_offset = layout_.KeyOffset(layer, head),
                            .value_offset = layout_.ValueOffset(layer, head),
                            .group = kQueryGroup,
                            .key_dim = kWidth,
                            .value_dim = kWidth,
                            .scale = 0.125f,
                            .kv_type = layout_.type()},
                   .query_index = kTokens - kQueries,
                   .tokens = kQueries,
                   .queries = numbers.queries.data() + layer * width + column,
                   .query_stride = kLayers * width,
                   .out = out.data() + column,
                   .out_stride = width},
                  scratch);
    }
  }

 private:
  static constexpr RequestId kId{1};
  kv::PageLayout layout_;
  kv::KvMemory memory_;
  kv::FrameArena arena_;
};

TEST(RankSlices, RanksTogetherGiveTheBitsOfOneDevice) {
  for (const KvType type : {KvType::kF16, KvType::kQ8}) {
    for (const uint32_t kv_heads : {8u, 4u, 6u, 2u}) {
      const kv::PageLayout whole = kv::PageLayout::Dense(type, kLayers, kv_heads, kWidth, kWidth);
      const Numbers numbers(kv_heads);
      for (const kernels::Isa isa : kernels::SupportedIsas()) {
        const kernels::KernelTable& kernels = kernels::KernelsFor(isa);
        Rank one(whole, 0);
        one.Store(kernels, numbers);
        for (const uint32_t ranks : {2u, 4u}) {
          SCOPED_TRACE(testing::Message() << kernels::IsaName(isa) << " " << kv_heads << " heads, " << ranks);
          std::deque<Rank> all;
          for (uint32_t r = 0; r < ranks; ++r) {
            all.emplace_back(whole.Slice(kv::HeadsOfRank(kv_heads, r, ranks)), r);
            all.back().Store(kernels, numbers);
            EXPECT_EQ(all.back().bytes() * kv_heads, one.bytes() * all.back().heads());
          }
          EXPECT_NE(all[0].FrameOf(2), all[1].FrameOf(2));  // Each took its own.
          for (uint32_t layer = 0; layer < kLayers; ++layer) {
            std::vector<float> expected(size_t{kQueries} * kv_heads * kQueryGroup * kWidth), together(expected.size());
            one.Attend(kernels, numbers, layer, expected);
            for (Rank& rank : all) rank.Attend(kernels, numbers, layer, together);
            EXPECT_EQ(std::memcmp(expected.data(), together.data(), expected.size() * sizeof(float)), 0);
          }
        }
      }
    }
  }
}

TEST(RankSlices, EveryHeadIsSomewhereAndSharesAreEqual) {
  for (const uint32_t kv_heads : {1u, 2u, 5u, 8u, 32u}) {
    for (const uint32_t ranks : {1u, 2u, 3u, 4u, 8u, 16u}) {
      std::vector<uint32_t> holders(kv_heads);
      for (uint32_t r = 0; r < ranks; ++r) {
        const kv::HeadRange heads = kv::HeadsOfRank(kv_heads, r, ranks);
        EXPECT_GE(heads.count(), 1u);
        EXPECT_LE(heads.count(), (kv_heads + ranks - 1) / ranks);
        for (uint32_t h = heads.begin; h < heads.end; ++h) ++holders.at(h);
      }
      for (const uint32_t count : holders) EXPECT_GE(count, 1u) << kv_heads << " heads, " << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace kvist::attention
