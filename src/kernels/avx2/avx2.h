#pragma once

/// @file
/// The AVX2 kernels: the floor that every machine has.

#include "kernels/kernel_table.h"

namespace kvist::kernels::avx2 {

void QuantizeRows(const float* x, size_t x_stride, uint32_t tokens, uint32_t cols, std::byte* out);
void MatMul(const PackedMatrix& w, const void* activations, size_t activation_stride, uint32_t tokens,
            uint32_t group_begin, uint32_t group_end, float* y, size_t y_stride);

/// Loops of products on registers; they return the multiply-adds they did (peak.h).
uint64_t PeakInt8(uint64_t rounds);
uint64_t PeakF32(uint64_t rounds);

extern const KernelTable kKernels;

}  // namespace kvist::kernels::avx2
