#pragma once

/// @file
/// Attention of a run of new tokens over a paged view: every key that causality and the window allow, with online
/// softmax. The view is cut by its block numbers into tiles (kernels::kTileBlocks blocks, one kernel call) and these
/// into sections of kSectionTiles tiles. Each section is summed up by itself, and the sections are merged in order: so
/// a token's result depends neither on how its prompt was cut into chunks, nor on what else is in the step, nor on how
/// many threads shared the sections of a long view. Threads: any, with a scratch each. Non-goals: selection of pages,
/// position shifts.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernel_table.h"
#include "kv/page_layout.h"

namespace kvist::attention {

/// Tiles of a section: 512 tokens of full blocks. Short enough to share a view of some thousand tokens among threads,
/// long enough that merging costs little.
inline constexpr uint32_t kSectionTiles = 8;
inline constexpr uint32_t kSectionBlocks = kSectionTiles * kernels::kTileBlocks;

/// The part of one resident block that belongs to a view.
struct ViewBlock {
  const std::byte* frame = nullptr;
  uint16_t begin = 0, count = 0;  ///< Tokens [begin, begin + count) of the block.
};

/// One KV head of one layer, for consecutive tokens of one sequence.
struct DenseTask {
  std::span<const ViewBlock> view;  ///< In view order, from the first token of the sequence.
  uint32_t query_index = 0;         ///< Index in the view of the first query token.
  uint32_t tokens = 0;              ///< Query tokens.
  const float* queries = nullptr;   ///< [tokens][q_stride]; this KV head's group of heads lies side by side.
  size_t query_stride = 0;          ///< Floats from token to token.
  float* out = nullptr;             ///< [tokens][out_stride], laid out as the queries.
  size_t out_stride = 0;
  uint64_t key_offset = 0, value_offset = 0;  ///< Of this head's pages in a frame (PageLayout).
  uint32_t group = 1;                         ///< Query heads that share the KV head.
  uint32_t key_dim = 0, value_dim = 0;
  uint32_t window = 0;  ///< Tokens seen, itself included; 0 = all.
  float scale = 1.0f;   ///< Of the scores.
  KvType kv_type = KvType::kF16;

  kernels::AttendShape Shape() const { return {tokens, group, key_dim, value_dim, /*softcap=*/0, kv_type}; }
};

/// Grows to the largest task seen, then allocates no more.
struct DenseScratch {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> queries;
  std::vector<float> sums, section;
  std::vector<uint64_t> visible;
};

/// Sections of a view of so many blocks.
constexpr uint32_t SectionsOf(size_t blocks) {
  return static_cast<uint32_t>((blocks + kSectionBlocks - 1) / kSectionBlocks);
}

/// Floats that the sums of a section take.
size_t SumsFloats(const kernels::AttendShape& shape);

void AttendDense(const kernels::KernelTable& kernels, const DenseTask& task, DenseScratch& scratch);

/// One section alone.
/// @param start  view index of the section's first token.
/// @param sums  SumsFloats(task.Shape()) floats, for MergeSections.
void AttendSection(const kernels::KernelTable& kernels, const DenseTask& task, uint32_t section, uint32_t start,
                   DenseScratch& scratch, float* sums);

/// What AttendDense does, from the sums of every section.
/// @param sums  [SectionsOf(task.view.size())][SumsFloats(task.Shape())]; the first ones are changed.
void MergeSections(const kernels::KernelTable& kernels, const DenseTask& task, float* sums);

}  // namespace kvist::attention
