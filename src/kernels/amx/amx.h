#pragma once

/// @file
/// The AMX kernels: matrix products and attention on tiles; everything else is that of AVX-512. As there, every symbol
/// is either in this namespace or local to its file, and a test looks for leaks (avx512/avx512.h says why). A thread's
/// tile registers are configured at the begin of a function and released at its end.

#include "kernels/kernel_table.h"

namespace kvist::kernels::amx {

void MatMul(const PackedMatrix& w, const void* activations, size_t activation_stride, uint32_t tokens,
            uint32_t group_begin, uint32_t group_end, float* y, size_t y_stride);

size_t AttendQueryBytes(const AttendShape& shape);
void AttendPrepare(const AttendShape& shape, const float* queries, size_t stride, float scale, std::byte* out);
void Attend(const AttendShape& shape, const std::byte* queries, const AttendTile& tile, const AttendSums& sums);
void AttendMerge(const AttendShape& shape, const AttendSums& from, const AttendSums& sums);

/// MatMul for quantised weights and any number of tokens; the same bits as every other instruction set.
void QuantizedMatMul(const PackedMatrix& w, const void* activations, size_t activation_stride, uint32_t tokens,
                     uint32_t group_begin, uint32_t group_end, float* y, size_t y_stride);

/// MatMul for F16 and BF16 weights and any number of tokens; bits of its own (kernel_table.h).
void HalfMatMul(const PackedMatrix& w, const void* activations, size_t activation_stride, uint32_t tokens,
                uint32_t group_begin, uint32_t group_end, float* y, size_t y_stride);

/// Loops of products on registers; they return the multiply-adds they did (peak.h).
uint64_t PeakInt8(uint64_t rounds);
uint64_t PeakBf16(uint64_t rounds);

}  // namespace kvist::kernels::amx
