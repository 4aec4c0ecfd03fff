#pragma once

/// @file
/// Random weights drawn directly in their stored form, without quantising: valid blocks with sane scales, so that a
/// model of them computes finite activations. Pure functions of (key, position): any thread, any order, equal bytes.
/// Non-goals: resembling trained weights.

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace kvist::lab {

/// Elements that one call draws at most; a multiple of every type's block.
inline constexpr uint64_t kSynthChunkElements = uint64_t{1} << 17;

/// True when DrawChunk knows the type. A new type is a row in the table of synth_blocks.cc.
bool CanDraw(DType dtype);

/// Fills `out` with chunk `chunk` (elements chunk * kSynthChunkElements ...) of the tensor that `key` names.
/// @param out    whole blocks, at most kSynthChunkElements elements.
/// @param sigma  standard deviation of the weights, about; the mean is about 0.
/// REQUIRES: CanDraw(dtype).
void DrawChunk(DType dtype, uint64_t key, uint64_t chunk, float sigma, std::span<std::byte> out);

}  // namespace kvist::lab
