#include "attention/dense.h"

#include <algorithm>
#include <limits>

namespace kvist::attention {
namespace {

/// Tokens of the block that starts at view index `block_start` which a query at view index `query` may see.
kernels::VisibleTokens Visible(const ViewBlock& block, uint32_t block_start, uint32_t query, uint32_t window) {
  uint32_t low = window != 0 && query + 1 > window ? query + 1 - window : 0;
  auto inside = [&](uint32_t index) {
    return index > block_start ? std::min(index - block_start, uint32_t{block.count}) : 0u;
  };
  return {static_cast<uint8_t>(block.begin + inside(low)), static_cast<uint8_t>(block.begin + inside(query + 1))};
}

void Start(const kernels::KernelTable& kernels, const DenseTask& task, DenseScratch& scratch) {
  const size_t rows = size_t{task.tokens} * task.group;
  scratch.queries.resize(std::max(scratch.queries.size(), rows * task.key_dim));
  scratch.acc.assign(rows * task.value_dim, 0.0f);
  scratch.max.assign(rows, -std::numeric_limits<float>::infinity());
  scratch.sum.assign(rows, 0.0f);
  scratch.visible.resize(std::max(scratch.visible.size(), rows));
  const uint32_t width = task.group * task.key_dim;
  for (uint32_t t = 0; t < task.tokens; ++t) {
    kernels.scale(task.queries + t * task.query_stride, task.scale, width, scratch.queries.data() + size_t{t} * width);
  }
}

}  // namespace

void AttendDense(const kernels::KernelTable& kernels, const DenseTask& task, DenseScratch& scratch) {
  Start(kernels, task, scratch);
  const uint32_t rows = task.tokens * task.group;
  uint32_t block_start = 0;
  for (const ViewBlock& block : task.view) {
    if (block_start >= task.query_index + task.tokens) break;
    bool any = false;
    for (uint32_t t = 0; t < task.tokens; ++t) {
      kernels::VisibleTokens visible = Visible(block, block_start, task.query_index + t, task.window);
      any |= visible.begin < visible.end;
      std::fill_n(scratch.visible.begin() + t * task.group, task.group, visible);
    }
    block_start += block.count;
    if (!any) continue;  // Outside every window: not touched.
    kernels.attend_block({.keys = reinterpret_cast<const uint16_t*>(block.frame + task.key_offset),
                          .values = reinterpret_cast<const uint16_t*>(block.frame + task.value_offset),
                          .key_dim = task.key_dim,
                          .value_dim = task.value_dim,
                          .rows = rows,
                          .queries = scratch.queries.data(),
                          .query_stride = task.key_dim,
                          .visible = scratch.visible.data(),
                          .softcap = 0,
                          .max = scratch.max.data(),
                          .sum = scratch.sum.data(),
                          .acc = scratch.acc.data(),
                          .acc_stride = task.value_dim});
  }
  for (uint32_t t = 0; t < task.tokens; ++t) {
    const size_t row = size_t{t} * task.group;
    kernels.attend_finish(scratch.acc.data() + row * task.value_dim, task.value_dim, scratch.sum.data() + row,
                          task.group, task.value_dim, task.out + t * task.out_stride, task.value_dim);
  }
}

}  // namespace kvist::attention
