#include "attention/dense.h"

#include <algorithm>
#include <limits>

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

const std::byte* Prepare(const kernels::KernelTable& kernels, const DenseTask& task, DenseScratch& scratch) {
  const AttendShape shape = task.Shape();
  const size_t lines = kernels.attend_query_bytes(shape) / sizeof(DenseScratch::Line);
  scratch.queries.resize(std::max(scratch.queries.size(), lines));
  scratch.visible.resize(std::max<size_t>(scratch.visible.size(), task.tokens));
  std::byte* out = scratch.queries.data()->bytes;
  kernels.attend_prepare(shape, task.queries, task.query_stride, task.scale, out);
  return out;
}

/// Bits [begin, end) of a page, shifted to block `block` of a tile.
uint64_t Bits(uint32_t begin, uint32_t end, uint32_t block) {
  if (begin >= end) return 0;
  return ((uint64_t{1} << end) - (uint64_t{1} << begin)) << (block * kPageTokens);
}

/// Tokens of the block that starts at view index `block_start` which a query at view index `query` may see.
uint64_t Visible(const ViewBlock& block, uint32_t block_start, uint32_t query, uint32_t window, uint32_t in_tile) {
  const uint32_t low = window != 0 && query + 1 > window ? query + 1 - window : 0;
  const auto inside = [&](uint32_t index) {
    return index > block_start ? std::min(index - block_start, uint32_t{block.count}) : 0u;
  };
  return Bits(block.begin + inside(low), block.begin + inside(query + 1), in_tile);
}

/// Asks for the pages of a tile while the one before it is summed up. They lie a frame apart and are a few kilobytes
/// each: too short for the processor to foresee.
void Prefetch(const DenseTask& task, size_t first) {
  constexpr size_t kLine = 64;
  const size_t key_bytes = KvKeyPageBytes(task.kv_type, task.key_dim);
  const size_t value_bytes = KvValuePageBytes(task.kv_type, task.value_dim);
  const size_t end = std::min(task.view.size(), first + kTileBlocks);
  for (size_t block = first; block < end; ++block) {
    const std::byte* keys = task.view[block].frame + task.key_offset;
    const std::byte* values = task.view[block].frame + task.value_offset;
    for (size_t i = 0; i < key_bytes; i += kLine) __builtin_prefetch(keys + i, 0, 2);
    for (size_t i = 0; i < value_bytes; i += kLine) __builtin_prefetch(values + i, 0, 2);
  }
}

/// Sums up one section. @param start  view index of the section's first token; moved past the section.
void AddSection(const kernels::KernelTable& kernels, const DenseTask& task, const std::byte* queries, uint32_t section,
                uint32_t& start, DenseScratch& scratch, const AttendSums& sums) {
  const auto end = std::min<size_t>(task.view.size(), size_t{section + 1} * kSectionBlocks);
  for (size_t first = size_t{section} * kSectionBlocks; first < end; first += kTileBlocks) {
    if (start >= task.query_index + task.tokens) return;
    kernels::AttendTile tile{.keys = {}, .values = {}, .visible = scratch.visible.data()};
    std::fill_n(scratch.visible.begin(), task.tokens, 0);
    uint64_t any = 0;
    for (uint32_t b = 0; b < kTileBlocks && first + b < end; ++b) {
      const ViewBlock& block = task.view[first + b];
      uint64_t block_any = 0;
      for (uint32_t t = 0; t < task.tokens; ++t) {
        const uint64_t bits = Visible(block, start, task.query_index + t, task.window, b);
        scratch.visible[t] |= bits;
        block_any |= bits;
      }
      start += block.count;
      any |= block_any;
      if (block_any == 0) continue;  // Outside every window: not touched.
      tile.keys[b] = block.frame + task.key_offset;
      tile.values[b] = block.frame + task.value_offset;
    }
    if (any == 0) continue;
    Prefetch(task, first + kTileBlocks);
    kernels.attend(task.Shape(), queries, tile, sums);
  }
}

}  // namespace

size_t SumsFloats(const AttendShape& shape) {
  return Rows(shape) * ((shape.value_dim + 15) / 16 * 16 + kPageTokens + 1);
}

void AttendDense(const kernels::KernelTable& kernels, const DenseTask& task, DenseScratch& scratch) {
  const AttendShape shape = task.Shape();
  const std::byte* queries = Prepare(kernels, task, scratch);
  const AttendSums sums = Start(scratch.sums, shape);
  uint32_t start = 0;
  AddSection(kernels, task, queries, 0, start, scratch, sums);
  const uint32_t sections = SectionsOf(task.view.size());
  for (uint32_t section = 1; section < sections && start < task.query_index + task.tokens; ++section) {
    const AttendSums part = Start(scratch.section, shape);
    AddSection(kernels, task, queries, section, start, scratch, part);
    kernels.attend_merge(shape, part, sums);
  }
  kernels.attend_finish(shape, sums, task.out, task.out_stride);
}

void AttendSection(const kernels::KernelTable& kernels, const DenseTask& task, uint32_t section, uint32_t start,
                   DenseScratch& scratch, float* sums) {
  AddSection(kernels, task, Prepare(kernels, task, scratch), section, start, scratch, Start(sums, task.Shape()));
}

void MergeSections(const kernels::KernelTable& kernels, const DenseTask& task, float* sums) {
  const AttendShape shape = task.Shape();
  const AttendSums total = SumsAt(sums, shape);
  const uint32_t sections = SectionsOf(task.view.size());
  for (uint32_t section = 1; section < sections; ++section) {
    kernels.attend_merge(shape, SumsAt(sums + section * SumsFloats(shape), shape), total);
  }
  kernels.attend_finish(shape, total, task.out, task.out_stride);
}

}  // namespace kvist::attention
