#pragma once

/// @file
/// Attention of a run of new tokens over a paged view: every key that causality and the window allow, block by block
/// with online softmax. The order of reduction is the order of blocks in the view, so a token's result does not depend
/// on how its prompt was cut into chunks or what else is in the step. Threads: any, with a scratch each. Non-goals:
/// selection of pages, position shifts.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernel_table.h"
#include "kv/page_layout.h"

namespace kvist::attention {

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
};

/// Grows to the largest task seen, then allocates no more.
struct DenseScratch {
  std::vector<float> queries, max, sum, acc;
  std::vector<kernels::VisibleTokens> visible;
};

void AttendDense(const kernels::KernelTable& kernels, const DenseTask& task, DenseScratch& scratch);

}  // namespace kvist::attention
