#pragma once

/// @file
/// The arithmetic of a model's step, as a table of functions per instruction set. Plain data: this header is also
/// compiled with wider instruction sets and must stay free of inline functions.
///
/// Promise: the order of every floating-point operation is part of each kernel's definition below, and every row
/// (token, head) is computed by itself. So a token's numbers have the same bits alone and in any batch, for any thread
/// count and on every instruction set. "fma(a, b, c)" is one rounding, everything else rounds once per operation, round
/// to nearest even, subnormals kept. The one exception: which NaN (sign, payload) comes out is not defined, only that
/// it is one.
///
/// Words: tree16(v) of 16 lanes is v[i] + v[i + 8], then + 4, + 2, + 1. Lane i of a vector over n elements takes the
/// elements i, i + 16, i + 32, ... in that order; elements past n are not read.
///
/// Threads: every function is pure on its arguments; callers split work by rows, groups or heads. No allocation.
/// Pointers: no alignment needed unless said; outputs may be the same array as an input where "in place" is said.

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/kv_type.h"

namespace kvist::kernels {

inline constexpr uint32_t kRowGroup = 16;               ///< Rows interleaved in a packed matrix.
inline constexpr uint32_t kPageTokens = kKvPageTokens;  ///< Tokens of a KV block; equals kv::kBlockTokens.
inline constexpr uint32_t kTileBlocks = 4;              ///< Blocks that attention takes at once.
inline constexpr uint32_t kTileTokens = kTileBlocks * kPageTokens;
inline constexpr uint32_t kHeadDimMax = 512;      ///< Widest key or value that attention takes.
inline constexpr uint32_t kColumnsMax = 1 << 24;  ///< Longest row of a packed matrix.

enum class Isa : uint8_t {
  kReference,  ///< Plain C++ that defines the bits.
  kAvx2,       ///< The floor: AVX2, FMA, F16C.
  kAvx512,     ///< AVX-512 F, BW, DQ, VL and VNNI.
  kAmx,        ///< kAvx512 with matrix products on AMX tiles.
};

/// A packed [rows, cols] weight matrix (packed.h). Borrowed.
struct PackedMatrix {
  DType dtype;
  uint32_t rows, cols;
  const std::byte* data;  ///< PackedBytes(dtype, rows, cols), 64-byte aligned.
};

/// Numbers of one block of 32 quantised activations.
struct ActivationMeta {
  float scale;       ///< x is about scale * q.
  float scaled_sum;  ///< scale * sum, rounded once.
  float sum;         ///< Sum of the 32 q; an integer, as a float because offsets are taken off in float registers.
  float sum_first;   ///< Sum of the first 16 q.
};

/// Query rows of one KV head that are attended together: `tokens` consecutive ones, each with `group` query heads. Row
/// t * group + g is head g of token t.
struct AttendShape {
  uint32_t tokens, group;
  uint32_t key_dim, value_dim;  ///< 1..kHeadDimMax.
  float softcap;                ///< Scores become softcap * tanh(score / softcap); 0 = off.
  KvType kv_type;               ///< Of the pages.
};

/// Up to kTileBlocks blocks of one KV head and who sees which of their tokens. Pages hold
///   kF16: keys f16 [key_dim][kPageTokens]; values f16 [kPageTokens][value_dim]
///   kQ8:  keys: scales f32 [key_dim / kKvKeyBlock, rounded up][kPageTokens], then i8 [key_dim][kPageTokens];
///         values: scales f32 [kPageTokens], then i8 [kPageTokens][value_dim]
/// and have KvKeyPageBytes and KvValuePageBytes.
struct AttendTile {
  const std::byte* keys[kTileBlocks];    ///< 64-byte aligned; null: no block, nobody sees it.
  const std::byte* values[kTileBlocks];  ///< 64-byte aligned; null where keys are.
  const uint64_t* visible;               ///< [tokens] bit kPageTokens * b + t: token t of block b is seen.
};

/// Running sums of the rows of an AttendShape, f32. Starts as max -infinity, everything else 0.
struct AttendSums {
  float* max;     ///< [rows]
  float* sum;     ///< [rows][16] lanes whose total is the sum of exponentials.
  float* acc;     ///< [rows][stride] weighted values.
  size_t stride;  ///< value_dim rounded up to 16.
};

/// How rotary pairs lie in a head: element i with i + rotary_dims / 2, or 2 i with 2 i + 1.
enum class RopePairs : uint8_t { kHalves, kAdjacent };

/// One instruction set's kernels.
struct KernelTable {
  Isa isa;

  /// Activations for quantised weights, one output row of ActivationRowBytes(cols) per token: q i8 [cols rounded up to
  /// 64], then ActivationMeta [cols / 32]; the padding is zero. Per block of 32: amax = max |x|.
  ///   amax infinite or any NaN: scale and scaled_sum NaN, q and sums 0 (the whole output row becomes NaN);
  ///   amax < 2^-120: scale 0, q 0;
  ///   else scale = amax / 127, q = round to nearest even (x * (127 / amax)).
  /// @param x  [tokens] rows of f32 [cols], `x_stride` floats apart.   REQUIRES: cols % 32 == 0.
  void (*quantize_rows)(const float* x, size_t x_stride, uint32_t tokens, uint32_t cols, std::byte* out);

  /// y[t * y_stride + r] = sum over k of W[r][k] * x[t][k] for the rows r of groups [group_begin, group_end), r < rows.
  ///
  /// Quantised W: one accumulator per (row, token), from +0, blocks of 32 columns in order. With integers u, values v
  /// of codes (tensor/code_values.h), activations q, a = scale:
  ///   Q8_0 Q5_0 Q4_0   acc = fma(d * a, float(sum (u - offset) q), acc)               offset 128, 16, 8
  ///   Q4_1 Q5_1        acc = fma(d * a, float(sum u q), acc);  acc = fma(m, scaled_sum, acc)
  ///   Q4_K Q5_K        acc = fma((d * s) * a, float(sum u q), acc);  acc = fma(-(dmin * m), scaled_sum, acc)
  ///   Q6_K             acc = fma(d * a, float(s0 * sum first 16 (u - 32) q + s1 * sum last 16), acc)
  ///   Q3_K             acc = fma(d * a, float(s0 * sum first 16 (u - 4) q + s1 * sum last 16), acc)
  ///   Q2_K             acc = fma(d * a, float(s0 * sum first 16 u q + s1 * sum last 16), acc), then for both halves
  ///                    acc = fma(-(dmin * m), a * float(sum q of the half), acc)
  ///   IQ4_NL           acc = fma(d * a, float(sum v q), acc)
  ///   IQ4_XS           acc = fma((d * s) * a, float(sum v q), acc)
  ///   MXFP4            acc = fma(2^(e - 128) * a, float(sum v q), acc)
  /// All sums of integers are exact (below 2^24), d * s and dmin * m too.
  /// F32, F16, BF16: four accumulators from +0, number k % 4 takes fma(w, x, acc) in order of k; y = (c0 + c1) + (c2 +
  /// c3). kAmx has an order of its own for F16 and BF16 (amx/half.cc), in which infinities become NaN; what it shares
  /// with the others is that a token's bits do not depend on its neighbours.
  ///
  /// @param activations  [tokens] rows `activation_stride` bytes apart, aligned to 4 bytes: from quantize_rows or f32
  /// [cols] (UsesQuantizedActivations).
  /// @param y            [tokens] rows `y_stride` floats apart.
  void (*matmul)(const PackedMatrix& w, const void* activations, size_t activation_stride, uint32_t tokens,
                 uint32_t group_begin, uint32_t group_end, float* y, size_t y_stride);

  /// y[i] = (x[i] * r) * weight[i], r = 1 / sqrt(tree16(lanes fma(x, x, lane)) / float(n) + eps). In place allowed.
  /// @param weight  [n], or null for ones.
  void (*rms_norm)(const float* x, const float* weight, uint32_t n, float eps, float* y);

  /// Rotates the first `rotary_dims` elements of each head in place: pair (a, b) with angle i becomes
  /// (fma(a, cos[i], -(b * sin[i])), fma(b, cos[i], a * sin[i])).
  /// @param x         [heads][head_dim]
  /// @param cos, sin  [rotary_dims / 2]    REQUIRES: rotary_dims even, at most head_dim.
  void (*rope)(float* x, uint32_t heads, uint32_t head_dim, uint32_t rotary_dims, const float* cos, const float* sin,
               RopePairs pairs);

  /// y[i] = (g / (1 + exp(-g))) * up[i], g = gate[i]. In place allowed. exp and tanh: scalar_math.h.
  void (*silu_mul)(const float* gate, const float* up, uint32_t n, float* y);

  /// y[i] = ((0.5 g) * (1 + tanh(0.7978845608 * fma(0.044715 * (g * g), g, g)))) * up[i], g = gate[i]. In place
  /// allowed.
  void (*gelu_tanh_mul)(const float* gate, const float* up, uint32_t n, float* y);

  /// y[i] = a[i] + b[i]. In place allowed.
  void (*add)(const float* a, const float* b, uint32_t n, float* y);

  /// y[i] = x[i] * factor. In place allowed.
  void (*scale)(const float* x, float factor, uint32_t n, float* y);

  /// y[i] = cap * tanh(x[i] / cap). In place allowed. REQUIRES: cap > 0.
  void (*softcap)(const float* x, float cap, uint32_t n, float* y);

  /// Writes one token's key into slot `slot` of a page of keys (AttendTile).
  ///   kF16: rounded to nearest even; values beyond the range of f16 (infinities too) become +-65504, NaN stays NaN.
  ///   kQ8:  scale and integers of each kKvKeyBlock elements as quantize_rows has them for a block, the last one may be
  ///         shorter: an infinity or NaN makes the scale NaN.
  void (*store_key)(KvType type, const float* row, uint32_t width, uint32_t slot, std::byte* page);

  /// The same into slot `slot` of a page of values; kQ8: the whole row is one block.
  void (*store_value)(KvType type, const float* row, uint32_t width, uint32_t slot, std::byte* page);

  /// Bytes that attend_prepare writes, a multiple of 64.
  size_t (*attend_query_bytes)(const AttendShape& shape);

  /// Brings queries into the form that attend reads: f32 [rows][key_dim] of queries * scale.
  /// @param queries  token t's heads begin at queries + t * stride, key_dim floats each, side by side.
  /// @param out      64-byte aligned.
  void (*attend_prepare)(const AttendShape& shape, const float* queries, size_t stride, float scale, std::byte* out);

  /// Online softmax over the visible tokens of a tile, each row by itself (Milakov, Gimelshein, "Online normalizer
  /// calculation for softmax", 2018). Rows that see nothing are left as they are. For the others, t over the
  /// kTileTokens slots in order of block and token, hidden ones with s = -infinity and p = +0:
  ///   s[t]   = four accumulators from +0, number i % 4 takes fma(query[i], key[i][t], c) in order of i;
  ///            (c0 + c1) + (c2 + c3); softcap
  ///   tile   = tree16 of max(max(s of block 0, of block 1), max(2, 3)), "max(a, b)" being a > b ? a : b
  ///   m'     = max > tile ? max : tile;  c = exp(max - m');  p[t] = exp(s[t] - m')
  ///   sum    = fma(sum, c, (p of block 0 + of 1) + (2 + 3)), lane by lane
  ///   acc[i] = acc[i] * c, then for visible t in order acc[i] = fma(w[t], value[t][i], acc[i]);  max = m'
  /// kF16: key[i][t] and value[t][i] are the stored numbers, w[t] = p[t]. kQ8: key[i][t] = float(integer) * scale[i /
  /// 32][t]; value[t][i] = float(integer), w[t] = p[t] * scale[t] with the scales of the values' page. kAmx has an
  /// order of its own (amx/attention.cc); what it shares with the others is that a row's bits do not depend on the
  /// other rows. What hidden slots of the pages hold (NaN, garbage) has no influence.
  /// @param queries  from attend_prepare.
  void (*attend)(const AttendShape& shape, const std::byte* queries, const AttendTile& tile, const AttendSums& sums);

  /// Adds the sums of later tokens to those of earlier ones. Rows of `from` that saw nothing change nothing. Others:
  ///   m' = max > from.max ? max : from.max;  a = exp(max - m');  b = exp(from.max - m')
  ///   sum = fma(from.sum, b, sum * a);  acc = fma(from.acc, b, acc * a);  max = m'
  void (*attend_merge)(const AttendShape& shape, const AttendSums& from, const AttendSums& sums);

  /// y = acc / tree16(sum); rows that saw nothing (sum 0) give 0. Laid out as attend_prepare's queries, value_dim
  /// floats a head.
  void (*attend_finish)(const AttendShape& shape, const AttendSums& sums, float* y, size_t stride);
};

}  // namespace kvist::kernels
