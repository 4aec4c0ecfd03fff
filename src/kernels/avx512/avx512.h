#pragma once

/// @file
/// The AVX-512 VNNI kernels. Their sources are compiled with instructions that not every machine has, so every symbol
/// of theirs is either in this namespace or local to its file, and they call no inline function of a shared header: the
/// linker keeps one copy of such a function and could keep theirs for everybody. A test looks for leaks.

#include "kernels/kernel_table.h"

namespace kvist::kernels::avx512 {

void QuantizeRows(const float* x, size_t x_stride, uint32_t tokens, uint32_t cols, std::byte* out);
void MatMul(const PackedMatrix& w, const void* activations, size_t activation_stride, uint32_t tokens,
            uint32_t group_begin, uint32_t group_end, float* y, size_t y_stride);

/// Loops of products on registers; they return the multiply-adds they did (peak.h).
uint64_t PeakInt8(uint64_t rounds);
uint64_t PeakF32(uint64_t rounds);

/// The whole table; its functions may only be called where CpuFeatures::avx512_vnni holds.
extern const KernelTable kKernels;

/// The same with matrix products on AMX tiles.
extern const KernelTable kKernelsWithAmx;

}  // namespace kvist::kernels::avx512
