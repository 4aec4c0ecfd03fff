#include "attention/dense.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "base/check.h"

namespace kvist::attention {
namespace {

using kernels::AttendShape;
using kernels::AttendSums;
using kernels::kPageTokens;
using kernels::kTileBlocks;

size_t Rows(const AttendShape& shape) {
  return size_t{shape.tokens} * shape.group;
}

AttendSums SumsAt(float* base, const AttendShape& shape) {
  // The accumulators first: their rows are whole vectors.
  const size_t stride = (shape.value_dim + 15) / 16 * 16;
  float* sum = base + Rows(shape) * stride;
  return {.max = sum + Rows(shape) * kPageTokens, .sum = sum, .acc = base, .stride = stride};
}

/// Room for the sums in `buffer`, set to their start.
AttendSums Start(float* base, const AttendShape& shape) {
  const AttendSums sums = SumsAt(base, shape);
  std::fill(base, sums.max, 0.0f);
  std::fill_n(sums.max, Rows(shape), -std::numeric_limits<float>::infinity());
  return sums;
}

AttendSums Start(std::vector<float>& buffer, const AttendShape& shape) {
  buffer.resize(std::max(buffer.size(), SumsFloats(shape)));
  return Start(buffer.data(), shape);
}

/// Bits [begin, end) of a page, shifted to block `block` of a tile.
uint64_t Bits(uint32_t begin, uint32_t end, uint32_t block) {
  if (begin >= end) return 0;
  return ((uint64_t{1} << end) - (uint64_t{1} << begin)) << (block * kPageTokens);
}

/// All slots of block `block` of a tile.
uint64_t BlockBits(uint32_t block) {
  return Bits(0, kPageTokens, block);
}

/// First view index that the query at view index `query` may see.
uint32_t LowOf(uint32_t query, uint32_t window) {
  return window != 0 && query + 1 > window ? query + 1 - window : 0;
}

/// Tokens of the block that starts at view index `block_start` which a query at view index `query` may see.
uint64_t Visible(const ViewBlock& block, uint32_t block_start, uint32_t query, uint32_t window, uint32_t in_tile) {
  const auto inside = [&](uint32_t index) {
    return index > block_start ? std::min<uint32_t>(index - block_start, block.count) : 0u;
  };
  return Bits(block.begin + inside(LowOf(query, window)), block.begin + inside(query + 1), in_tile);
}

/// Asks for the pages of a tile while the one before it is summed up. They lie a frame apart and are a few kilobytes
/// each: too short for the processor to foresee.
void Prefetch(const HeadView& head, std::span<const ViewBlock> blocks) {
  constexpr size_t kLine = 64;
  const size_t key_bytes = KvKeyPageBytes(head.kv_type, head.key_dim);
  const size_t value_bytes = KvValuePageBytes(head.kv_type, head.value_dim);
  for (const ViewBlock& block : blocks) {
    const std::byte* keys = head.KeysOf(block);
    const std::byte* values = head.ValuesOf(block);
    for (size_t i = 0; i < key_bytes; i += kLine) __builtin_prefetch(keys + i, 0, 2);
    for (size_t i = 0; i < value_bytes; i += kLine) __builtin_prefetch(values + i, 0, 2);
  }
}

/// Sums up sections of one view for some query tokens. Their indices are in the scratch.
class Attender {
 public:
  /// @param queries  [tokens][stride]
  Attender(const kernels::KernelTable& kernels, const HeadView& head, const float* queries, size_t stride,
           DenseScratch& scratch)
      : kernels_(kernels),
        head_(head),
        queries_(queries),
        stride_(stride),
        scratch_(scratch),
        shape_(head.Shape(static_cast<uint32_t>(scratch.indices.size()))) {
    const auto [first, last] = std::ranges::minmax(scratch.indices);
    first_ = first;
    last_ = last;
    scratch.visible.resize(std::max<size_t>(scratch.visible.size(), shape_.tokens));
  }

  /// View index of the last query.
  uint32_t last() const { return last_; }

  /// @param start     view index of the section's first token; moved past the section, or past the last query.
  /// @param read_end  blocks up to here will be read next.
  void AddSection(uint32_t section, uint32_t& start, size_t read_end, const AttendSums& sums) {
    const auto end = std::min<size_t>(head_.view.size(), size_t{section + 1} * kSectionBlocks);
    for (size_t first = size_t{section} * kSectionBlocks; first < end && start <= last_; first += kTileBlocks) {
      const auto tile = head_.view.subspan(first, std::min<size_t>(kTileBlocks, end - first));
      uint32_t next = start;
      for (const ViewBlock& block : tile) next += block.count;
      if (next > LowOf(first_, head_.window)) {  // Else outside every window: not touched.
        const size_t ahead = first + tile.size();
        if (ahead < read_end && next <= last_) {
          Prefetch(head_, head_.view.subspan(ahead, std::min<size_t>(kTileBlocks, read_end - ahead)));
        }
        AddTile(tile, start, next, sums);
      }
      start = next;
    }
  }

 private:
  /// Fills scratch_.visible. @return  what any query sees.
  uint64_t Masks(std::span<const ViewBlock> tile, uint32_t start, uint32_t end) {
    uint64_t all = 0, any = 0;
    for (uint32_t b = 0; b < tile.size(); ++b) all |= Bits(tile[b].begin, tile[b].begin + tile[b].count, b);
    if (end <= first_ + 1 && start >= LowOf(last_, head_.window)) {  // The rule in long views.
      std::fill_n(scratch_.visible.begin(), shape_.tokens, all);
      return all;
    }
    for (uint32_t t = 0; t < shape_.tokens; ++t) {
      uint64_t seen = 0;
      uint32_t block_start = start;
      for (uint32_t b = 0; b < tile.size(); block_start += tile[b++].count) {
        seen |= Visible(tile[b], block_start, scratch_.indices[t], head_.window, b);
      }
      scratch_.visible[t] = seen;
      any |= seen;
    }
    return any;
  }

  uint32_t TurnOf(const ViewBlock& block) const { return head_.turns.dims == 0 ? 0 : block.turn; }

  void AddTile(std::span<const ViewBlock> tile, uint32_t start, uint32_t end, const AttendSums& sums) {
    const uint64_t any = Masks(tile, start, end);
    uint64_t left = ~uint64_t{0};  // Blocks whose turn was not yet taken.
    // By the first block of a turn, seen or not: what other queries see must not change the order.
    for (uint32_t lead = 0; lead < tile.size(); ++lead) {
      if ((left & BlockBits(lead)) == 0) continue;
      const uint32_t turn = TurnOf(tile[lead]);
      uint64_t mine = 0;
      for (uint32_t b = lead; b < tile.size(); ++b) {
        if (TurnOf(tile[b]) == turn) mine |= BlockBits(b);
      }
      left &= ~mine;
      if ((any & mine) != 0) Attend(tile, any, mine, QueriesFor(turn), sums);
    }
  }

  /// The blocks of a tile whose bits are in `mine`.
  void Attend(std::span<const ViewBlock> tile, uint64_t any, uint64_t mine, const std::byte* queries,
              const AttendSums& sums) {
    kernels::AttendTile part{.keys = {}, .values = {}, .visible = scratch_.visible.data()};
    for (uint32_t b = 0; b < tile.size(); ++b) {
      if ((any & mine & BlockBits(b)) == 0) continue;
      part.keys[b] = head_.KeysOf(tile[b]);
      part.values[b] = head_.ValuesOf(tile[b]);
    }
    if ((any & ~mine) != 0) {
      std::vector<uint64_t>& visible = scratch_.visible_of_turn;
      visible.resize(std::max<size_t>(visible.size(), shape_.tokens));
      for (uint32_t t = 0; t < shape_.tokens; ++t) visible[t] = scratch_.visible[t] & mine;
      part.visible = visible.data();
    }
    kernels_.attend(shape_, queries, part, sums);
  }

  /// Views go from one turn to the next, so only the last one's queries are kept.
  const std::byte* QueriesFor(uint32_t turn) {
    if (prepared_turn_ == turn) return scratch_.prepared.data()->bytes;
    prepared_turn_ = turn;
    const size_t lines = kernels_.attend_query_bytes(shape_) / sizeof(DenseScratch::Line);
    scratch_.prepared.resize(std::max(scratch_.prepared.size(), lines));
    std::byte* out = scratch_.prepared.data()->bytes;
    if (turn == 0) {
      kernels_.attend_prepare(shape_, queries_, stride_, head_.scale, out);
      return out;
    }
    const Turns& turns = head_.turns;
    const size_t width = size_t{shape_.group} * shape_.key_dim, pairs = turns.dims / 2;
    scratch_.turned.resize(std::max(scratch_.turned.size(), shape_.tokens * width));
    for (uint32_t t = 0; t < shape_.tokens; ++t) {
      float* turned = scratch_.turned.data() + t * width;
      std::copy_n(queries_ + t * stride_, width, turned);
      kernels_.rope(turned, shape_.group, shape_.key_dim, turns.dims, turns.cos + turn * pairs,
                    turns.sin + turn * pairs, turns.pairs);
    }
    kernels_.attend_prepare(shape_, scratch_.turned.data(), width, head_.scale, out);
    return out;
  }

  const kernels::KernelTable& kernels_;
  const HeadView& head_;
  const float* queries_;
  const size_t stride_;
  DenseScratch& scratch_;
  const AttendShape shape_;
  uint32_t first_ = 0, last_ = 0;          ///< Smallest and largest view index of a query.
  std::optional<uint32_t> prepared_turn_;  ///< Of the queries in scratch_.prepared.
};

}  // namespace

size_t SumsFloats(const AttendShape& shape) {
  return Rows(shape) * ((shape.value_dim + 15) / 16 * 16 + kPageTokens + 1);
}

void AttendDense(const kernels::KernelTable& kernels, const DenseTask& task, DenseScratch& scratch) {
  const AttendShape shape = task.head.Shape(task.tokens);
  scratch.indices.resize(task.tokens);
  std::iota(scratch.indices.begin(), scratch.indices.end(), task.query_index);
  Attender attender(kernels, task.head, task.queries, task.query_stride, scratch);
  const AttendSums sums = Start(scratch.sums, shape);
  const size_t blocks = task.head.view.size();
  uint32_t start = 0;
  attender.AddSection(0, start, blocks, sums);
  const uint32_t sections = SectionsOf(blocks);
  for (uint32_t section = 1; section < sections && start <= attender.last(); ++section) {
    const AttendSums part = Start(scratch.section, shape);
    attender.AddSection(section, start, blocks, part);
    kernels.attend_merge(shape, part, sums);
  }
  kernels.attend_finish(shape, sums, task.out, task.out_stride);
}

void AttendSection(const kernels::KernelTable& kernels, const HeadView& head, std::span<const Reader> readers,
                   uint32_t section, uint32_t start, DenseScratch& scratch, float* sums) {
  KVIST_CHECK(!readers.empty());
  const size_t width = size_t{head.group} * head.key_dim;
  scratch.indices.clear();
  for (const Reader& reader : readers) scratch.indices.push_back(reader.query_index);
  const float* queries = readers.front().queries;
  if (readers.size() > 1) {
    scratch.gathered.resize(std::max(scratch.gathered.size(), readers.size() * width));
    float* row = scratch.gathered.data();
    for (const Reader& reader : readers) row = std::copy_n(reader.queries, width, row);
    queries = scratch.gathered.data();
  }
  Attender attender(kernels, head, queries, width, scratch);
  const size_t end = std::min<size_t>(head.view.size(), size_t{section + 1} * kSectionBlocks);
  attender.AddSection(section, start, end, Start(sums, head.Shape(static_cast<uint32_t>(readers.size()))));
}

void MergeSections(const kernels::KernelTable& kernels, const HeadView& head, std::span<const SectionSums> sections,
                   float* out) {
  const auto rows_of = [&](const SectionSums& section) {
    AttendSums sums = SumsAt(section.sums, head.Shape(section.readers));
    const size_t first = size_t{section.reader} * head.group;
    sums.max += first;
    sums.sum += first * kPageTokens;
    sums.acc += first * sums.stride;
    return sums;
  };
  const AttendShape shape = head.Shape(1);
  const AttendSums total = rows_of(sections.front());
  for (const SectionSums& section : sections.subspan(1)) kernels.attend_merge(shape, rows_of(section), total);
  kernels.attend_finish(shape, total, out, /*stride=*/0);
}

void SumScores(const kernels::KernelTable& kernels, HeadView head, const Reader& reader, DenseScratch& scratch,
               ScoreSum* out) {
  KVIST_CHECK(head.view.size() <= kSectionBlocks);
  // The kernels weigh values, too. What they make of one number of the page that they have just read is not looked at.
  head.value_dim = 1;
  head.value_offset = head.key_offset;
  head.split.value = head.split.key;
  const AttendShape shape = head.Shape(1);
  scratch.section.resize(std::max(scratch.section.size(), SumsFloats(shape)));
  AttendSection(kernels, head, {&reader, 1}, /*section=*/0, /*start=*/0, scratch, scratch.section.data());
  const AttendSums sums = SumsAt(scratch.section.data(), shape);
  for (uint32_t g = 0; g < head.group; ++g) {
    const float* lanes = sums.sum + size_t{g} * kPageTokens;
    out[g] = {sums.max[g], std::accumulate(lanes, lanes + kPageTokens, 0.0f)};
  }
}

void ShareScores(const kernels::KernelTable& kernels, uint32_t heads, std::span<ScoreSum> sums, DenseScratch& scratch) {
  const AttendShape shape{
      .tokens = 1, .group = heads, .key_dim = 1, .value_dim = 1, .softcap = 0, .kv_type = KvType::kF16};
  const AttendSums total = Start(scratch.sums, shape), part = Start(scratch.section, shape),
                   scaled = Start(scratch.gathered, shape);
  const auto load = [&](std::span<const ScoreSum> from) {
    for (uint32_t h = 0; h < heads; ++h) {
      part.max[h] = from[h].max;
      part.sum[size_t{h} * kPageTokens] = from[h].sum;
    }
  };
  for (size_t i = 0; i < sums.size(); i += heads) {
    load(sums.subspan(i, heads));
    kernels.attend_merge(shape, part, total);
  }
  // A part added to a sum of nothing that has the whole's maximum is the part in units of the whole.
  std::copy_n(total.max, heads, scaled.max);
  for (size_t i = 0; i < sums.size(); i += heads) {
    load(sums.subspan(i, heads));
    std::fill_n(scaled.sum, size_t{heads} * kPageTokens, 0.0f);
    kernels.attend_merge(shape, part, scaled);
    for (uint32_t h = 0; h < heads; ++h) {
      sums[i + h].sum = scaled.sum[size_t{h} * kPageTokens] / total.sum[size_t{h} * kPageTokens];
    }
  }
}

}  // namespace kvist::attention
