#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/packed.h"
#include "kernels/reference/reference.h"
#include "tensor/half.h"

namespace kvist::kernels::reference {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const ActivationMeta* MetaOf(const std::byte* row, uint32_t cols) {
  return reinterpret_cast<const ActivationMeta*>(row + (cols + 63) / 64 * 64);
}

/// One block of 32; `q` is where its integers go.
ActivationMeta QuantizeBlock(const float* x, int8_t* q) {
  uint32_t amax_bits = 0;
  for (int i = 0; i < 32; ++i) amax_bits = std::max(amax_bits, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  float amax = std::bit_cast<float>(amax_bits);
  if (amax_bits >= 0x7f800000u) {
    std::memset(q, 0, 32);
    return {kNan, kNan, 0, 0};
  }
  if (amax < 0x1p-120f) {
    std::memset(q, 0, 32);
    return {0, 0, 0, 0};
  }
  float inverse = 127.0f / amax;
  ActivationMeta meta{amax / 127.0f, 0, 0, 0};
  int32_t sum = 0;
  for (int i = 0; i < 32; ++i) {
    q[i] = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
    sum += q[i];
    if (i == 15) meta.sum_first = static_cast<float>(sum);
  }
  meta.sum = static_cast<float>(sum);
  meta.scaled_sum = meta.scale * meta.sum;
  return meta;
}

float AddBlock(const PackedBlock& w, const int8_t* q, const ActivationMeta& meta, float acc) {
  int32_t total = 0;
  for (int h = 0; h < 2; ++h) {
    int32_t sum = 0;
    for (int i = 16 * h; i < 16 * h + 16; ++i) sum += w.q[i] * q[i];
    total += w.scale[h] * sum;
  }
  acc = std::fma(w.d * meta.scale, static_cast<float>(total), acc);
  if (w.mins == 1) acc = std::fma(w.min[0], meta.scaled_sum, acc);
  if (w.mins == 2) {
    acc = std::fma(w.min[0], meta.scale * meta.sum_first, acc);
    acc = std::fma(w.min[1], meta.scale * (meta.sum - meta.sum_first), acc);
  }
  return acc;
}

void QuantizedRow(const PackedMatrix& w, uint32_t row, const std::byte* activations, size_t stride, uint32_t tokens,
                  float* y, size_t y_stride) {
  for (uint32_t t = 0; t < tokens; ++t) y[t * y_stride + row] = 0;
  for (uint32_t b = 0; b < w.cols / 32; ++b) {
    PackedBlock block;
    ReadPackedBlock(w, row, b, block);
    for (uint32_t t = 0; t < tokens; ++t) {
      const std::byte* x = activations + t * stride;
      float& out = y[t * y_stride + row];
      out = AddBlock(block, reinterpret_cast<const int8_t*>(x) + b * 32, MetaOf(x, w.cols)[b], out);
    }
  }
}

float WeightAt(const PackedMatrix& w, const std::byte* group, size_t index) {
  if (w.dtype == DType::kF32) {
    float value;
    std::memcpy(&value, group + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, group + index * 2, 2);
  return w.dtype == DType::kF16 ? F16ToF32(bits) : Bf16ToF32(bits);
}

void FloatRow(const PackedMatrix& w, uint32_t row, const std::byte* activations, size_t stride, uint32_t tokens,
              float* y, size_t y_stride) {
  const std::byte* group = w.data + row / kRowGroup * GroupBytes(w.dtype, w.cols);
  for (uint32_t t = 0; t < tokens; ++t) {
    const float* x = reinterpret_cast<const float*>(activations + t * stride);
    float c[4] = {};
    for (uint32_t k = 0; k < w.cols; ++k) {
      c[k % 4] = std::fma(WeightAt(w, group, size_t{k} * kRowGroup + row % kRowGroup), x[k], c[k % 4]);
    }
    y[t * y_stride + row] = (c[0] + c[1]) + (c[2] + c[3]);
  }
}

}  // namespace

void QuantizeRows(const float* x, size_t x_stride, uint32_t tokens, uint32_t cols, std::byte* out) {
  for (uint32_t t = 0; t < tokens; ++t) {
    std::byte* row = out + t * ActivationRowBytes(cols);
    std::memset(row, 0, ActivationRowBytes(cols));
    auto* meta = reinterpret_cast<ActivationMeta*>(row + (cols + 63) / 64 * 64);
    for (uint32_t b = 0; b < cols / 32; ++b) {
      meta[b] = QuantizeBlock(x + t * x_stride + b * 32, reinterpret_cast<int8_t*>(row) + b * 32);
    }
  }
}

void MatMul(const PackedMatrix& w, const void* activations, size_t activation_stride, uint32_t tokens,
            uint32_t group_begin, uint32_t group_end, float* y, size_t y_stride) {
  uint32_t row_end = std::min(w.rows, group_end * kRowGroup);
  const auto* rows = static_cast<const std::byte*>(activations);
  for (uint32_t row = group_begin * kRowGroup; row < row_end; ++row) {
    if (UsesQuantizedActivations(w.dtype)) {
      QuantizedRow(w, row, rows, activation_stride, tokens, y, y_stride);
    } else {
      FloatRow(w, row, rows, activation_stride, tokens, y, y_stride);
    }
  }
}

}  // namespace kvist::kernels::reference
