// What finding pages through a table costs attention: one step's queries over all layers and heads of the shape of
// llama-3.2-1b, one thread (claims/P18). Goal: nothing that shows.
//
//   in_order   frames one after another
//   scattered  frames in random order over twice the memory
//   split      every block split, each page in a random slot
//   no_table   keys and values of a head in one piece; addresses are computed, no block is looked up
//
// Arguments: blocks of the view, query tokens. All give the same bits, which is checked.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "attention/dense.h"
#include "base/check.h"
#include "base/prng.h"
#include "kernels/dispatch.h"
#include "kv/page_layout.h"
#include "platform/anonymous_memory.h"

namespace kvist::attention {
namespace {

constexpr uint32_t kLayers = 16, kHeads = 8, kGroup = 4, kWidth = 64, kTemplates = 7;

enum class Place { kInOrder, kScattered, kSplit, kNoTable };

template <class T>
void Shuffle(std::vector<T>& items, Prng& prng) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[prng.Below(i)]);
}

class World {
 public:
  World(KvType type, Place place, uint32_t blocks, uint32_t tokens)
      : kernels_(kernels::KernelsFor(kernels::BestIsa())),
        layout_(kv::PageLayout::Dense(type, kLayers, kHeads, kWidth, kWidth)),
        place_(place),
        blocks_(blocks),
        tokens_(tokens) {
    absl::StatusOr<AnonymousMemory> memory = AnonymousMemory::Map(2 * blocks * layout_.frame_bytes());
    KVIST_CHECK(memory.ok());
    memory_ = *std::move(memory);
    Prng prng(1);
    queries_.resize(size_t{tokens} * kHeads * kGroup * kWidth);
    for (float& x : queries_) x = static_cast<float>(prng.Uniform() - 0.5);
    out_.resize(queries_.size());
    PlacePages();
    Fill(prng);
  }

  uint64_t bytes() const { return blocks_ * layout_.frame_bytes(); }

  void Step() {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      for (uint32_t head = 0; head < kHeads; ++head) {
        const size_t column = size_t{head} * kGroup * kWidth, stride = size_t{kHeads} * kGroup * kWidth;
        const DenseTask task{.head = HeadOf(layer, head),
                             .query_index = blocks_ * kv::kBlockTokens - tokens_,
                             .tokens = tokens_,
                             .queries = queries_.data() + column,
                             .query_stride = stride,
                             .out = out_.data() + column,
                             .out_stride = stride};
        if (place_ == Place::kNoTable) {
          AttendInOnePiece(task, PageAt(0, layout_.KeyPage(layer, head)), PageAt(0, layout_.ValuePage(layer, head)));
        } else {
          AttendDense(kernels_, task, scratch_);
        }
      }
    }
  }

  const std::vector<float>& out() const { return out_; }

 private:
  HeadView HeadOf(uint32_t layer, uint32_t head) const {
    return {.view = view_,
            .key_offset = layout_.KeyOffset(layer, head),
            .value_offset = layout_.ValueOffset(layer, head),
            .split = {pages_.data(), layout_.pages(), layout_.KeyPage(layer, head), layout_.ValuePage(layer, head)},
            .group = kGroup,
            .key_dim = kWidth,
            .value_dim = kWidth,
            .scale = 0.125f,
            .kv_type = layout_.type()};
  }

  /// Decides where every page lies: pages_[block][page], and the view.
  void PlacePages() {
    Prng prng(2);
    std::vector<uint32_t> frames(2 * blocks_);
    std::iota(frames.begin(), frames.end(), 0u);
    if (place_ == Place::kScattered || place_ == Place::kSplit) Shuffle(frames, prng);
    std::vector<std::vector<uint32_t>> blocks_of_page(layout_.pages(), std::vector<uint32_t>(blocks_));
    for (std::vector<uint32_t>& order : blocks_of_page) {
      std::iota(order.begin(), order.end(), 0u);
      if (place_ == Place::kSplit) Shuffle(order, prng);
    }
    pages_.resize(size_t{blocks_} * layout_.pages());
    uint64_t piece = 0;  // kNoTable: [page of a block][block]
    for (uint32_t page = 0; page < layout_.pages(); ++page) {
      const uint64_t bytes = layout_.LaneOf(page).page_bytes;
      for (uint32_t block = 0; block < blocks_; ++block) {
        const uint32_t frame = frames[blocks_of_page[page][block]];
        pages_[size_t{block} * layout_.pages() + page] =
            memory_.data() + (place_ == Place::kNoTable ? piece + block * bytes
                                                        : frame * layout_.frame_bytes() + layout_.PageOffset(page));
      }
      piece += blocks_ * bytes;
    }
    for (uint32_t block = 0; block < blocks_; ++block) {
      view_.push_back({.frame = memory_.data() + frames[block] * layout_.frame_bytes(), .count = kv::kBlockTokens});
      if (place_ == Place::kSplit) {
        view_.back().frame = nullptr;
        view_.back().pages = static_cast<uint16_t>(block + 1);
      }
    }
  }

  std::byte* PageAt(uint32_t block, uint32_t page) const {
    return const_cast<std::byte*>(pages_[size_t{block} * layout_.pages() + page]);
  }

  void Fill(Prng& prng) {
    std::vector<std::vector<std::byte>> keys(kTemplates), values(kTemplates);
    std::vector<float> row(kWidth);
    for (uint32_t i = 0; i < kTemplates; ++i) {
      keys[i].resize(KvKeyPageBytes(layout_.type(), kWidth));
      values[i].resize(KvValuePageBytes(layout_.type(), kWidth));
      for (uint32_t t = 0; t < kv::kBlockTokens; ++t) {
        for (float& x : row) x = static_cast<float>(prng.Uniform() - 0.5);
        kernels_.store_key(layout_.type(), row.data(), kWidth, t, keys[i].data());
        kernels_.store_value(layout_.type(), row.data(), kWidth, t, values[i].data());
      }
    }
    for (uint32_t block = 0; block < blocks_; ++block) {
      for (uint32_t page = 0; page < layout_.pages(); ++page) {
        const auto& templates = layout_.LaneOf(page).kind == kv::LaneKind::kKey ? keys : values;
        std::ranges::copy(templates[(block * 31 + page) % kTemplates], PageAt(block, page));
      }
    }
  }

  /// AttendDense without blocks to look up: tiles, sections and their order are the same.
  void AttendInOnePiece(const DenseTask& task, const std::byte* keys, const std::byte* values) {
    const kernels::AttendShape shape = task.head.Shape(task.tokens);
    const size_t key_bytes = KvKeyPageBytes(layout_.type(), kWidth), rows = size_t{task.tokens} * kGroup;
    const size_t value_bytes = KvValuePageBytes(layout_.type(), kWidth);
    prepared_.resize(kernels_.attend_query_bytes(shape) / sizeof(DenseScratch::Line));
    kernels_.attend_prepare(shape, task.queries, task.query_stride, task.head.scale, prepared_.data()->bytes);
    visible_.assign(task.tokens, ~uint64_t{0});
    const auto start = [&](std::vector<float>& sums) {
      sums.assign(rows * (kWidth + kv::kBlockTokens + 1), 0.0f);
      float* sum = sums.data() + rows * kWidth;
      float* max = sum + rows * kv::kBlockTokens;
      std::fill_n(max, rows, -std::numeric_limits<float>::infinity());
      return kernels::AttendSums{.max = max, .sum = sum, .acc = sums.data(), .stride = kWidth};
    };
    const kernels::AttendSums total = start(total_);
    for (uint32_t section = 0; section < blocks_; section += kSectionBlocks) {
      const kernels::AttendSums sums = section == 0 ? total : start(section_);
      for (uint32_t tile = section; tile < std::min(blocks_, section + kSectionBlocks); tile += kernels::kTileBlocks) {
        kernels::AttendTile part{.keys = {}, .values = {}, .visible = visible_.data()};
        const uint32_t count = std::min(kernels::kTileBlocks, blocks_ - tile);
        for (uint32_t b = 0; b < count; ++b) {
          part.keys[b] = keys + (tile + b) * key_bytes;
          part.values[b] = values + (tile + b) * value_bytes;
        }
        if (tile + count == blocks_) {  // Causal: only the last tokens differ in what they see.
          for (uint32_t t = 0; t < task.tokens; ++t) {
            const uint32_t seen = count * kv::kBlockTokens - (task.tokens - 1 - t);
            visible_[t] = ~uint64_t{0} >> (64 - seen);
          }
        } else {
          for (uint32_t b = 0; b < kernels::kTileBlocks; ++b) {
            for (size_t i = 0; i < key_bytes; i += 64)
              __builtin_prefetch(part.keys[b] + kernels::kTileBlocks * key_bytes + i, 0, 2);
            for (size_t i = 0; i < value_bytes; i += 64)
              __builtin_prefetch(part.values[b] + kernels::kTileBlocks * value_bytes + i, 0, 2);
          }
        }
        kernels_.attend(shape, prepared_.data()->bytes, part, sums);
      }
      if (section > 0) kernels_.attend_merge(shape, sums, total);
    }
    kernels_.attend_finish(shape, total, task.out, task.out_stride);
  }

  const kernels::KernelTable& kernels_;
  kv::PageLayout layout_;
  Place place_;
  uint32_t blocks_, tokens_;
  AnonymousMemory memory_;
  std::vector<const std::byte*> pages_;  ///< [blocks][layout_.pages()]
  std::vector<ViewBlock> view_;
  std::vector<float> queries_, out_, total_, section_;
  std::vector<DenseScratch::Line> prepared_;
  std::vector<uint64_t> visible_;
  DenseScratch scratch_;
};

void Attend(benchmark::State& state, KvType type, Place place) {
  const auto blocks = static_cast<uint32_t>(state.range(0)), tokens = static_cast<uint32_t>(state.range(1));
  World world(type, place, blocks, tokens);
  for (auto _ : state) world.Step();
  World expected(type, Place::kInOrder, blocks, tokens);
  expected.Step();
  KVIST_CHECK(std::memcmp(world.out().data(), expected.out().data(), world.out().size() * sizeof(float)) == 0);
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(world.bytes()) * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

bool RegisterAll() {
  constexpr std::pair<const char*, Place> kPlaces[] = {{"in_order", Place::kInOrder},
                                                       {"scattered", Place::kScattered},
                                                       {"split", Place::kSplit},
                                                       {"no_table", Place::kNoTable}};
  for (const KvType type : {KvType::kF16, KvType::kQ8}) {
    for (const auto& [name, place] : kPlaces) {
      const std::string title = std::string(KvTypeName(type)) + "/" + name;
      benchmark::RegisterBenchmark(title.c_str(), Attend, type, place)
          ->Unit(benchmark::kMillisecond)
          ->Args({64, 1})
          ->Args({512, 1})
          ->Args({512, 64});
    }
  }
  return true;
}

[[maybe_unused]] const bool kRegistered = RegisterAll();

}  // namespace
}  // namespace kvist::attention
