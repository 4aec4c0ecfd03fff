#pragma once

/// @file
/// Quantisation of f32 rows to every stored type: round to nearest under scales taken from each block's range, no
/// search. Good enough for random models and tests, not meant to win a quality comparison. Pure functions, any thread.

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace kvist {

/// Writes one row as `dtype`. Values that are not finite count as 0 in the block types.
/// REQUIRES: `elements` is a multiple of the type's block; `out` holds RowBytes(dtype, elements).
void QuantizeRow(DType dtype, const float* values, size_t elements, std::byte* out);

}  // namespace kvist
