#pragma once

/// @file
/// The reference kernels: each function of KernelTable in plain C++, as its definition reads. Slow and obvious on
/// purpose; every other instruction set is held against it bit for bit.

#include "kernels/kernel_table.h"

namespace kvist::kernels::reference {

void QuantizeRows(const float* x, size_t x_stride, uint32_t tokens, uint32_t cols, std::byte* out);
void MatMul(const PackedMatrix& w, const void* activations, size_t activation_stride, uint32_t tokens,
            uint32_t group_begin, uint32_t group_end, float* y, size_t y_stride);
void RmsNorm(const float* x, const float* weight, uint32_t n, float eps, float* y);
void Rope(float* x, uint32_t heads, uint32_t head_dim, uint32_t rotary_dims, const float* cos, const float* sin,
          RopePairs pairs);
void SiluMul(const float* gate, const float* up, uint32_t n, float* y);
void GeluTanhMul(const float* gate, const float* up, uint32_t n, float* y);
void Add(const float* a, const float* b, uint32_t n, float* y);
void Scale(const float* x, float factor, uint32_t n, float* y);
void Softcap(const float* x, float cap, uint32_t n, float* y);
void StoreKey(KvType type, const float* row, uint32_t width, uint32_t slot, std::byte* page);
void StoreValue(KvType type, const float* row, uint32_t width, uint32_t slot, std::byte* page);
size_t AttendQueryBytes(const AttendShape& shape);
void AttendPrepare(const AttendShape& shape, const float* queries, size_t stride, float scale, std::byte* out);
void Attend(const AttendShape& shape, const std::byte* queries, const AttendTile& tile, const AttendSums& sums);
void AttendMerge(const AttendShape& shape, const AttendSums& from, const AttendSums& sums);
void AttendFinish(const AttendShape& shape, const AttendSums& sums, float* y, size_t stride);

}  // namespace kvist::kernels::reference

namespace kvist::kernels {

extern const KernelTable kReferenceKernels;

}  // namespace kvist::kernels
