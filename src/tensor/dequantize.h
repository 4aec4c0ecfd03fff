#pragma once

/// @file
/// Reference dequantisation of tensor rows: the meaning of every stored type. Used for embedding rows, tests and the
/// kernels' oracle; pure functions, any thread. Non-goals: speed (matrix products never come here).

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace kvist {

/// Writes `elements` f32 values of one stored row. Products and sums of the formulas in quant_blocks.h are rounded
/// to f32 one by one, from left to right.
/// REQUIRES: `elements` is a multiple of the type's block; `source` holds RowBytes(dtype, elements).
void DequantizeRow(DType dtype, const std::byte* source, size_t elements, float* out);

}  // namespace kvist
