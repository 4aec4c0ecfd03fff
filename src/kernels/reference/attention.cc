#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/reference/reference.h"
#include "kernels/scalar_math.h"
#include "tensor/half.h"

namespace kvist::kernels::reference {
namespace {

uint16_t ToHalf(float value) {
  value = 65504.0f < value ? 65504.0f : value;
  value = -65504.0f > value ? -65504.0f : value;
  return F32ToF16(value);
}

/// Factors of a block of kQ8: x is about integer * scale, integer is x * inverse rounded.
struct ByteScale {
  float scale, inverse;
};

ByteScale ScaleOf(const float* row, uint32_t n) {
  uint32_t amax_bits = 0;
  for (uint32_t i = 0; i < n; ++i) amax_bits = std::max(amax_bits, std::bit_cast<uint32_t>(row[i]) & 0x7fffffffu);
  const float amax = std::bit_cast<float>(amax_bits);
  if (amax_bits >= 0x7f800000u) return {std::numeric_limits<float>::quiet_NaN(), 0};
  if (amax < 0x1p-120f) return {0, 0};
  return {amax / 127.0f, 127.0f / amax};
}

/// Writes a block of kQ8 of which integer i goes to at(i).
template <class Place>
void StoreBytes(const float* row, uint32_t n, float& scale, Place at) {
  const ByteScale factors = ScaleOf(row, n);
  scale = factors.scale;
  for (uint32_t i = 0; i < n; ++i) {
    at(i) = factors.inverse == 0 ? int8_t{0} : static_cast<int8_t>(std::nearbyint(row[i] * factors.inverse));
  }
}

uint32_t KeyBlocks(uint32_t key_dim) {
  return (key_dim + kKvKeyBlock - 1) / kKvKeyBlock;
}

float KeyAt(const AttendShape& shape, const std::byte* page, uint32_t i, uint32_t token) {
  const size_t at = size_t{i} * kPageTokens + token;
  if (shape.kv_type == KvType::kF16) return F16ToF32(reinterpret_cast<const uint16_t*>(page)[at]);
  const int8_t integer = reinterpret_cast<const int8_t*>(page + KeyBlocks(shape.key_dim) * kKvScaleBytes)[at];
  return static_cast<float>(integer) * reinterpret_cast<const float*>(page)[i / kKvKeyBlock * kPageTokens + token];
}

/// Without its scale.
float ValueAt(const AttendShape& shape, const std::byte* page, uint32_t token, uint32_t i) {
  const size_t at = size_t{token} * shape.value_dim + i;
  if (shape.kv_type == KvType::kF16) return F16ToF32(reinterpret_cast<const uint16_t*>(page)[at]);
  return reinterpret_cast<const int8_t*>(page + kKvScaleBytes)[at];
}

/// A probability times the scale of its token, if values have scales.
float WeightOf(const AttendShape& shape, const std::byte* page, uint32_t token, float p) {
  return shape.kv_type == KvType::kF16 ? p : p * reinterpret_cast<const float*>(page)[token];
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

float Plus(float a, float b) {
  return a + b;
}

/// Lane by lane over the four blocks of a tile: (0, 1), (2, 3).
template <class Combine>
void FoldBlocks(const float values[kTileTokens], Combine combine, float lanes[kPageTokens]) {
  for (uint32_t i = 0; i < kPageTokens; ++i) {
    const float* v = values + i;
    lanes[i] = combine(combine(v[0], v[kPageTokens]), combine(v[2 * kPageTokens], v[3 * kPageTokens]));
  }
}

float Score(const AttendShape& shape, const float* query, const std::byte* keys, uint32_t token) {
  float c[4] = {};
  for (uint32_t i = 0; i < shape.key_dim; ++i) {
    c[i % 4] = std::fma(query[i], KeyAt(shape, keys, i, token), c[i % 4]);
  }
  float score = (c[0] + c[1]) + (c[2] + c[3]);
  return shape.softcap == 0.0f ? score : shape.softcap * Tanh(score / shape.softcap);
}

void AttendRow(const AttendShape& shape, const float* query, const AttendTile& tile, uint64_t visible,
               const AttendSums& sums, uint32_t row) {
  float scores[kTileTokens], lanes[kPageTokens], p[kTileTokens] = {};
  const auto sees = [visible](uint32_t t) { return (visible >> t & 1) != 0; };
  for (uint32_t t = 0; t < kTileTokens; ++t) {
    scores[t] = sees(t) ? Score(shape, query, tile.keys[t / kPageTokens], t % kPageTokens)
                        : -std::numeric_limits<float>::infinity();
  }
  FoldBlocks(scores, Larger, lanes);
  const float max = Larger(sums.max[row], Tree(lanes, Larger));
  const float correction = Exp(sums.max[row] - max);
  for (uint32_t t = 0; t < kTileTokens; ++t) p[t] = sees(t) ? Exp(scores[t] - max) : 0.0f;
  FoldBlocks(p, Plus, lanes);
  float* sum = sums.sum + row * kPageTokens;
  for (uint32_t i = 0; i < kPageTokens; ++i) sum[i] = std::fma(sum[i], correction, lanes[i]);
  sums.max[row] = max;
  float* acc = sums.acc + row * sums.stride;
  for (uint32_t i = 0; i < shape.value_dim; ++i) {
    acc[i] = acc[i] * correction;
    for (uint32_t t = 0; t < kTileTokens; ++t) {
      if (!sees(t)) continue;
      const std::byte* page = tile.values[t / kPageTokens];
      const uint32_t token = t % kPageTokens;
      acc[i] = std::fma(WeightOf(shape, page, token, p[t]), ValueAt(shape, page, token, i), acc[i]);
    }
  }
}

}  // namespace

void StoreKey(KvType type, const float* row, uint32_t width, uint32_t slot, std::byte* page) {
  if (type == KvType::kF16) {
    for (uint32_t i = 0; i < width; ++i) reinterpret_cast<uint16_t*>(page)[i * kPageTokens + slot] = ToHalf(row[i]);
    return;
  }
  auto* scales = reinterpret_cast<float*>(page);
  auto* bytes = reinterpret_cast<int8_t*>(page + KeyBlocks(width) * kKvScaleBytes);
  for (uint32_t first = 0; first < width; first += kKvKeyBlock) {
    StoreBytes(row + first, std::min(width - first, kKvKeyBlock), scales[first / kKvKeyBlock * kPageTokens + slot],
               [=](uint32_t i) -> int8_t& { return bytes[(first + i) * kPageTokens + slot]; });
  }
}

void StoreValue(KvType type, const float* row, uint32_t width, uint32_t slot, std::byte* page) {
  if (type == KvType::kF16) {
    for (uint32_t i = 0; i < width; ++i) reinterpret_cast<uint16_t*>(page)[slot * width + i] = ToHalf(row[i]);
    return;
  }
  auto* bytes = reinterpret_cast<int8_t*>(page + kKvScaleBytes);
  StoreBytes(row, width, reinterpret_cast<float*>(page)[slot],
             [=](uint32_t i) -> int8_t& { return bytes[slot * width + i]; });
}

size_t AttendQueryBytes(const AttendShape& shape) {
  return (size_t{shape.tokens} * shape.group * shape.key_dim * sizeof(float) + 63) / 64 * 64;
}

void AttendPrepare(const AttendShape& shape, const float* queries, size_t stride, float scale, std::byte* out) {
  const uint32_t width = shape.group * shape.key_dim;
  for (uint32_t t = 0; t < shape.tokens; ++t) {
    Scale(queries + t * stride, scale, width, reinterpret_cast<float*>(out) + size_t{t} * width);
  }
}

void Attend(const AttendShape& shape, const std::byte* queries, const AttendTile& tile, const AttendSums& sums) {
  for (uint32_t row = 0; row < shape.tokens * shape.group; ++row) {
    const uint64_t visible = tile.visible[row / shape.group];
    const float* query = reinterpret_cast<const float*>(queries) + size_t{row} * shape.key_dim;
    if (visible != 0) AttendRow(shape, query, tile, visible, sums, row);
  }
}

void AttendMerge(const AttendShape& shape, const AttendSums& from, const AttendSums& sums) {
  for (uint32_t row = 0; row < shape.tokens * shape.group; ++row) {
    if (from.max[row] == -std::numeric_limits<float>::infinity()) continue;
    const float max = Larger(sums.max[row], from.max[row]);
    const float a = Exp(sums.max[row] - max), b = Exp(from.max[row] - max);
    sums.max[row] = max;
    const auto merge = [a, b](const float* x, float* y, uint32_t n) {
      for (uint32_t i = 0; i < n; ++i) y[i] = std::fma(x[i], b, y[i] * a);
    };
    merge(from.sum + row * kPageTokens, sums.sum + row * kPageTokens, kPageTokens);
    merge(from.acc + row * from.stride, sums.acc + row * sums.stride, shape.value_dim);
  }
}

void AttendFinish(const AttendShape& shape, const AttendSums& sums, float* y, size_t stride) {
  for (uint32_t row = 0; row < shape.tokens * shape.group; ++row) {
    float lanes[kPageTokens];
    for (uint32_t i = 0; i < kPageTokens; ++i) lanes[i] = sums.sum[row * kPageTokens + i];
    const float sum = Tree(lanes, Plus);
    float* out = y + row / shape.group * stride + row % shape.group * shape.value_dim;
    for (uint32_t i = 0; i < shape.value_dim; ++i) out[i] = sum == 0.0f ? 0.0f : sums.acc[row * sums.stride + i] / sum;
  }
}

}  // namespace kvist::kernels::reference
