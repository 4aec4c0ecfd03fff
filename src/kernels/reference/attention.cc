#include <cmath>
#include <limits>

#include "kernels/reference/reference.h"
#include "kernels/scalar_math.h"
#include "tensor/half.h"

namespace kvist::kernels::reference {
namespace {

uint16_t ToPage(float value) {
  value = 65504.0f < value ? 65504.0f : value;
  value = -65504.0f > value ? -65504.0f : value;
  return F32ToF16(value);
}

float Larger(float a, float b) {
  return a > b ? a : b;
}

/// tree16 of the definition; destroys `lanes`.
template <class Combine>
float Tree(float lanes[kPageTokens], Combine combine) {
  for (int half = kPageTokens / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] = combine(lanes[i], lanes[i + half]);
  }
  return lanes[0];
}

float Score(const AttendBlock& block, const float* query, uint32_t token) {
  float c[4] = {};
  for (uint32_t i = 0; i < block.key_dim; ++i) {
    c[i % 4] = std::fma(query[i], F16ToF32(block.keys[i * kPageTokens + token]), c[i % 4]);
  }
  float score = (c[0] + c[1]) + (c[2] + c[3]);
  return block.softcap == 0.0f ? score : block.softcap * Tanh(score / block.softcap);
}

void AttendRow(const AttendBlock& block, uint32_t row) {
  VisibleTokens visible = block.visible[row];
  float scores[kPageTokens], lanes[kPageTokens], p[kPageTokens] = {};
  for (uint32_t t = 0; t < kPageTokens; ++t) scores[t] = -std::numeric_limits<float>::infinity();
  for (uint32_t t = visible.begin; t < visible.end; ++t) {
    scores[t] = Score(block, block.queries + row * block.query_stride, t);
  }
  for (uint32_t t = 0; t < kPageTokens; ++t) lanes[t] = scores[t];
  float max = Larger(block.max[row], Tree(lanes, Larger));
  float correction = Exp(block.max[row] - max);
  for (uint32_t t = visible.begin; t < visible.end; ++t) p[t] = Exp(scores[t] - max);
  for (uint32_t t = 0; t < kPageTokens; ++t) lanes[t] = p[t];
  block.sum[row] = std::fma(block.sum[row], correction, Tree(lanes, [](float a, float b) { return a + b; }));
  block.max[row] = max;
  float* acc = block.acc + row * block.acc_stride;
  for (uint32_t i = 0; i < block.value_dim; ++i) {
    acc[i] = acc[i] * correction;
    for (uint32_t t = visible.begin; t < visible.end; ++t) {
      acc[i] = std::fma(p[t], F16ToF32(block.values[t * block.value_dim + i]), acc[i]);
    }
  }
}

}  // namespace

void StoreKey(const float* row, uint32_t width, uint32_t slot, uint16_t* page) {
  for (uint32_t i = 0; i < width; ++i) page[i * kPageTokens + slot] = ToPage(row[i]);
}

void StoreValue(const float* row, uint32_t width, uint32_t slot, uint16_t* page) {
  for (uint32_t i = 0; i < width; ++i) page[slot * width + i] = ToPage(row[i]);
}

void Attend(const AttendBlock& block) {
  for (uint32_t row = 0; row < block.rows; ++row) {
    if (block.visible[row].begin < block.visible[row].end) AttendRow(block, row);
  }
}

void AttendFinish(const float* acc, size_t acc_stride, const float* sum, uint32_t rows, uint32_t value_dim, float* y,
                  size_t y_stride) {
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t i = 0; i < value_dim; ++i) {
      y[row * y_stride + i] = sum[row] == 0.0f ? 0.0f : acc[row * acc_stride + i] / sum[row];
    }
  }
}

}  // namespace kvist::kernels::reference
