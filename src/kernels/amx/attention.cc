#include <immintrin.h>

#include "kernels/amx/amx.h"
#include "kernels/scalar_math.h"

namespace kvist::kernels::amx {
namespace {

#include "kernels/avx512/native.inc"
// native.inc first: the others are written in its words.
#include "kernels/amx/brains.inc"
#include "kernels/amx/tiles.inc"
#include "kernels/generic/math.inc"

// Every f32 number here is the sum of two bf16 numbers, its upper 16 bits and the rest ("high" and "low"): exact for
// keys and values, which are f16; to 2^-16 for queries and probabilities. Products are high * high + high * low + low *
// high. Integers of kQ8 are exact in one bf16 number: they have no low. Their scales are left to the scores of each
// kKvKeyBlock dimensions and to the weights of the values.

constexpr uint32_t kTileRows = 16;
constexpr uint32_t kTileBytes = 1024;
constexpr uint32_t kStepDims = 32;  ///< Columns of a tile of bf16: dimensions of a query, tokens of probabilities.
static_assert(kStepDims == kKvKeyBlock);
constexpr uint32_t kTokenSteps = kTileTokens / kStepDims;
constexpr uint32_t kStepsMax = kHeadDimMax / kStepDims;
constexpr uint32_t kValueTilesMax = kHeadDimMax / 16;

constexpr float kLog2E = MathConstants::kLog2E;
/// Minimax fit of (2^r - 1) / r on [-1/2, 1/2]; 2^r is within 1e-7 of itself.
constexpr float kExp2[5] = {0x1.62e42ap-1f, 0x1.ebf9bcp-3f, 0x1.c6b752p-5f, 0x1.3cea88p-7f, 0x1.5bba14p-10f};

/// Pairs of bf16 tiles: [high, low].
struct Pair {
  std::byte high[kTileBytes], low[kTileBytes];
};

KVIST_INLINE uint32_t StepsOf(uint32_t dims) {
  return (dims + kStepDims - 1) / kStepDims;
}

/// Row `row` of a pair of tiles from two rows of f16 numbers widened to f32.
KVIST_INLINE void StorePairRow(Pair& pair, uint32_t row, __m512 a, __m512 b) {
  _mm512_store_si512(pair.high + 64 * row, UpperHalves(a, b));
  _mm512_store_si512(pair.low + 64 * row, UpperHalves(Rest(a), Rest(b)));
}

/// How the numbers of a page are read and brought into pairs.
template <KvType type>
struct Stored;

template <>
struct Stored<KvType::kF16> {
  static constexpr bool kScaled = false;
  using Number = uint16_t;
  KVIST_INLINE const Number* Numbers(const std::byte* page, uint32_t /*scales*/) {
    return reinterpret_cast<const Number*>(page);
  }
  KVIST_INLINE __m512 Read(const Number* p) { return LoadHalf(p); }
  KVIST_INLINE __m512 ReadFirst(const Number* p, uint32_t n) { return LoadHalfFirst(p, n); }
  KVIST_INLINE void Store(Pair& pair, uint32_t row, __m512 a, __m512 b) { StorePairRow(pair, row, a, b); }
};

template <>
struct Stored<KvType::kQ8> {
  static constexpr bool kScaled = true;
  using Number = int8_t;
  /// @param scales  of each token.
  KVIST_INLINE const Number* Numbers(const std::byte* page, uint32_t scales) {
    return page == nullptr ? nullptr : reinterpret_cast<const Number*>(page + scales * kKvScaleBytes);
  }
  KVIST_INLINE __m512 Read(const Number* p) { return LoadByte(p); }
  KVIST_INLINE __m512 ReadFirst(const Number* p, uint32_t n) { return LoadByteFirst(p, n); }
  KVIST_INLINE void Store(Pair& pair, uint32_t row, __m512 a, __m512 b) {
    _mm512_store_si512(pair.high + 64 * row, UpperHalves(a, b));
  }
};

/// 32 numbers in order as high and low bf16.
KVIST_INLINE void StoreSplit(Pair& pair, uint32_t row, __m512 first, __m512 last) {
  StoreHighLow(pair.high + 64 * row, pair.low + 64 * row, first, last);
}

/// 2^x for x <= 0, NaN for NaN; below 2^-150 it is 0.
KVIST_INLINE __m512 Exp2(__m512 x) {
  x = _mm512_max_ps(Set(-150.0f), x);
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = Sub(x, n);
  __m512 p = Fma(Set(kExp2[4]), r, Set(kExp2[3]));
  p = Fma(p, r, Set(kExp2[2]));
  p = Fma(p, r, Set(kExp2[1]));
  p = Fma(p, r, Set(kExp2[0]));
  p = Fma(p, r, Set(1.0f));
  return _mm512_scalef_ps(p, n);
}

KVIST_INLINE float Exp2One(float x) {
  return _mm512_cvtss_f32(Exp2(Set(x)));
}

/// Loads the right side into tile 6 or 7 in turn and adds its product with tile `left`.
template <int sum, int left>
KVIST_INLINE void AddProduct(const std::byte* right) {
  constexpr int kRight = 6 + sum % 2;
  LoadTile<kRight>(right, 64);
  DotBrains<sum, left, kRight>();
}

template <int left>
KVIST_INLINE void AddFour(const std::byte* first, size_t stride) {
  AddProduct<0, left>(first);
  AddProduct<1, left>(first + stride);
  AddProduct<2, left>(first + 2 * stride);
  AddProduct<3, left>(first + 3 * stride);
}

/// Sums 0 to 3 += left * each of four pairs.
template <KvType type>
KVIST_INLINE void AddSplitProducts(const Pair& left, const Pair (&right)[4]) {
  LoadTile<4>(left.high, 64);
  LoadTile<5>(left.low, 64);
  AddFour<4>(right->high, sizeof(Pair));
  if constexpr (type == KvType::kF16) AddFour<4>(right->low, sizeof(Pair));
  AddFour<5>(right->high, sizeof(Pair));
}

/// What one call works on.
struct Task {
  const AttendShape& shape;
  const AttendTile& tile;
  const AttendSums& sums;
  const Pair* queries;
  uint64_t seen;  ///< Tokens that some row sees.
  bool once;      ///< One tile of rows: keys and values are widened step by step into the same few buffers.
};

struct Scratch {
  Pair keys[kStepsMax][kTileBlocks];
  Pair values[kTokenSteps * kValueTilesMax / 4][4];  ///< [four value tiles][token step]
  alignas(64) float scores[kTileBlocks][kTileRows][kPageTokens];
  alignas(64) float parts[2][kTileBlocks][kTileRows][kPageTokens];  ///< Scores of single steps, without scales.
  Pair weights[kTokenSteps];
  alignas(64) float max[kTileRows];
  alignas(64) float correction[kTileRows];
};

/// Keys of 32 dimensions, without scales.
template <KvType type>
KVIST_INLINE void WidenKeys(const Task& task, uint32_t step, Pair (&out)[kTileBlocks]) {
  const uint32_t first = step * kStepDims;
  const uint32_t dims = task.shape.key_dim - first < kStepDims ? task.shape.key_dim - first : kStepDims;
  for (uint32_t b = 0; b < kTileBlocks; ++b) {
    const uint32_t existing = task.tile.keys[b] == nullptr ? 0 : dims;
    const auto* rows = Stored<type>::Numbers(task.tile.keys[b], StepsOf(task.shape.key_dim)) +
                       (existing == 0 ? 0 : first * kPageTokens);
    if (existing == kStepDims) {
#pragma GCC unroll 4
      for (uint32_t pair = 0; pair < kTileRows; ++pair) {
        Stored<type>::Store(out[b], pair, Stored<type>::Read(rows + 2 * pair * kPageTokens),
                            Stored<type>::Read(rows + (2 * pair + 1) * kPageTokens));
      }
      continue;
    }
    for (uint32_t pair = 0; pair < kTileRows; ++pair) {
      const auto row = [&](uint32_t dim) __attribute__((always_inline)) {
        return dim < existing ? Stored<type>::Read(rows + dim * kPageTokens) : Set(0.0f);
      };
      Stored<type>::Store(out[b], pair, row(2 * pair), row(2 * pair + 1));
    }
  }
}

/// Values of 32 tokens and 64 dimensions, without scales. Tokens that no row sees become zeros: what lies there may not
/// be a number.
template <KvType type>
KVIST_INLINE void WidenValues(const Task& task, uint32_t step, uint32_t first_dim, Pair (&out)[4]) {
  const uint32_t value_dim = task.shape.value_dim;
  for (uint32_t pair = 0; pair < kTileRows; ++pair) {
    const uint32_t token = step * kStepDims + 2 * pair;
    const auto* page = Stored<type>::Numbers(task.tile.values[token / kPageTokens], 1);
    const size_t at = token % kPageTokens * size_t{value_dim} + first_dim;  // Of the pair's first row in the page.
    const uint64_t seen = task.seen >> token & 3;
    if (seen == 3 && value_dim - first_dim >= 64) {
#pragma GCC unroll 4
      for (uint32_t i = 0; i < 4; ++i) {
        Stored<type>::Store(out[i], pair, Stored<type>::Read(page + at + 16 * i),
                            Stored<type>::Read(page + at + value_dim + 16 * i));
      }
      continue;
    }
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t dim = first_dim + 16 * i;
      const uint32_t n = dim >= value_dim ? 0 : value_dim - dim < 16 ? value_dim - dim : 16;
      const auto part = [&](bool wanted, size_t row) __attribute__((always_inline)) {
        return wanted && n > 0 ? Stored<type>::ReadFirst(page + row + 16 * i, n) : Set(0.0f);
      };
      Stored<type>::Store(out[i], pair, part((seen & 1) != 0, at), part((seen & 2) != 0, at + value_dim));
    }
  }
}

KVIST_INLINE void ZeroSums() {
  ZeroTile<0>();
  ZeroTile<1>();
  ZeroTile<2>();
  ZeroTile<3>();
}

KVIST_INLINE void StoreSums(float (&out)[kTileBlocks][kTileRows][kPageTokens]) {
  StoreTile<0>(out[0][0], 64);
  StoreTile<1>(out[1][0], 64);
  StoreTile<2>(out[2][0], 64);
  StoreTile<3>(out[3][0], 64);
}

/// Scale `index` of the tokens of a page; of one that is not there, zeros.
KVIST_INLINE __m512 ScalesOf(const std::byte* page, uint32_t index) {
  return page == nullptr ? Set(0.0f) : _mm512_load_ps(page + index * kKvScaleBytes);
}

/// Adds the scores of one step, times the scales of its keys.
KVIST_INLINE void AddScaled(const Task& task, uint32_t step, uint32_t rows, Scratch& scratch) {
  for (uint32_t b = 0; b < kTileBlocks; ++b) {
    const __m512 scales = ScalesOf(task.tile.keys[b], step);
    for (uint32_t r = 0; r < rows; ++r) {
      const __m512 sum = step == 0 ? Set(0.0f) : _mm512_load_ps(scratch.scores[b][r]);
      _mm512_store_ps(scratch.scores[b][r], Fma(_mm512_load_ps(scratch.parts[step % 2][b][r]), scales, sum));
    }
  }
}

/// Scores of one tile of rows against the four blocks. Tiles are read from memory, which waits for what was just
/// written: so widening keeps one step ahead, and adding up scores with scales one behind.
template <KvType type>
KVIST_INLINE void Scores(const Task& task, const Pair* queries, uint32_t rows, bool widen, Scratch& scratch) {
  const uint32_t steps = StepsOf(task.shape.key_dim);
  const auto keys = [&](uint32_t s) -> Pair(&)[kTileBlocks] { return scratch.keys[task.once ? s % 2 : s]; };
  ZeroSums();
  if (widen) WidenKeys<type>(task, 0, keys(0));
  for (uint32_t s = 0; s < steps; ++s) {
    if (widen && s + 1 < steps) WidenKeys<type>(task, s + 1, keys(s + 1));
    AddSplitProducts<type>(queries[s], keys(s));
    if constexpr (Stored<type>::kScaled) {
      StoreSums(scratch.parts[s % 2]);
      ZeroSums();
      if (s > 0) AddScaled(task, s - 1, rows, scratch);
    }
  }
  if constexpr (Stored<type>::kScaled) {
    AddScaled(task, steps - 1, rows, scratch);
  } else {
    StoreSums(scratch.scores);
  }
}

KVIST_INLINE __mmask16 Seen(uint64_t visible, uint32_t block) {
  return static_cast<__mmask16>(visible >> (kPageTokens * block));
}

/// Scores to weights, running maxima and sums of one tile of rows. With scales, probabilities are multiplied by
/// those of the values after they were summed up.
template <KvType type>
KVIST_INLINE void Soften(const AttendShape& shape, const AttendTile& tile, uint32_t first, uint32_t rows,
                         const AttendSums& sums, Scratch& scratch) {
  constexpr bool kScaled = Stored<type>::kScaled;
  const __m512 hidden = Set(-__builtin_inff()), cap = Set(shape.softcap);
  [[maybe_unused]] __m512 scales[kTileBlocks];
  if constexpr (kScaled) {
    for (uint32_t b = 0; b < kTileBlocks; ++b) scales[b] = ScalesOf(tile.values[b], 0);
  }
  for (uint32_t r = 0; r < rows; ++r) {
    const uint64_t visible = tile.visible[(first + r) / shape.group];
    __m512 s[kTileBlocks];
#pragma GCC unroll 4
    for (uint32_t b = 0; b < kTileBlocks; ++b) {
      s[b] = _mm512_load_ps(scratch.scores[b][r]);
      if (shape.softcap != 0.0f) {
        s[b] = Mul(Mul(cap, TanhOf(Div(s[b], cap))), Set(kLog2E));
        _mm512_store_ps(scratch.scores[b][r], s[b]);
      }
      s[b] = _mm512_mask_blend_ps(Seen(visible, b), hidden, s[b]);
    }
    const __m512 top = Max(Max(s[0], s[1]), Max(s[2], s[3]));
    const float old_max = sums.max[first + r], tile_max = TreeMax(&top);
    scratch.max[r] = old_max > tile_max ? old_max : tile_max;
  }
  // Rows that saw nothing yet and see nothing now: -inf - -inf is no number, but their weights are all hidden.
  const __m512 old_max = LoadFirst(sums.max + first, rows), new_max = LoadFirst(scratch.max, rows);
  const __m512 correction = Exp2(Sub(old_max, new_max));
  const __mmask16 empty = _mm512_cmp_ps_mask(new_max, hidden, _CMP_EQ_OQ);
  _mm512_store_ps(scratch.correction, _mm512_mask_blend_ps(empty, correction, Set(1.0f)));
  StoreFirst(sums.max + first, new_max, rows);
  for (uint32_t r = 0; r < rows; ++r) {
    const uint64_t visible = tile.visible[(first + r) / shape.group];
    const __m512 max = Set(scratch.max[r]);
    __m512 p[kTileBlocks];
#pragma GCC unroll 4
    for (uint32_t b = 0; b < kTileBlocks; ++b) {
      p[b] = _mm512_maskz_mov_ps(Seen(visible, b), Exp2(Sub(_mm512_load_ps(scratch.scores[b][r]), max)));
    }
    float* sum = sums.sum + (first + r) * kPageTokens;
    Store(sum, Fma(Load(sum), Set(scratch.correction[r]), Add(Add(p[0], p[1]), Add(p[2], p[3]))));
    if constexpr (kScaled) {
      // The scale of a hidden token may be anything.
      for (uint32_t b = 0; b < kTileBlocks; ++b) p[b] = _mm512_maskz_mul_ps(Seen(visible, b), p[b], scales[b]);
    }
    StoreSplit(scratch.weights[0], r, p[0], p[1]);
    StoreSplit(scratch.weights[1], r, p[2], p[3]);
  }
}

/// The accumulators of one tile of rows: what they held, shrunk, and the weighted values.
template <KvType type>
KVIST_INLINE void AddValues(const Task& task, uint32_t first, uint32_t rows, bool widen, Scratch& scratch) {
  const size_t stride = task.sums.stride, stride_bytes = stride * sizeof(float);
  const uint32_t tiles = (task.shape.value_dim + 15) / 16, groups = (tiles + 3) / 4;
  float* acc = task.sums.acc + first * stride;
  for (uint32_t r = 0; r < rows; ++r) {
    if (scratch.correction[r] == 1.0f) continue;  // The maximum stayed, which is the rule after some tiles.
    const __m512 factor = Set(scratch.correction[r]);
    for (uint32_t i = 0; i < tiles; ++i) Store(acc + r * stride + 16 * i, Mul(Load(acc + r * stride + 16 * i), factor));
  }
  const auto values = [&](uint32_t part) -> Pair(&)[4] { return scratch.values[task.once ? part % 4 : part]; };
  const uint32_t parts = kTokenSteps * groups;
  if (widen) WidenValues<type>(task, 0, 0, values(0));
  for (uint32_t part = 0; part < parts; ++part) {
    const uint32_t next = part + 1, left = tiles - part / kTokenSteps * 4;
    if (widen && next < parts) WidenValues<type>(task, next % kTokenSteps, next / kTokenSteps * 64, values(next));
    float* out = acc + part / kTokenSteps * 64;
    if (part % kTokenSteps == 0) {
      LoadTile<0>(out, stride_bytes);
      if (left > 1) LoadTile<1>(out + 16, stride_bytes);
      if (left > 2) LoadTile<2>(out + 32, stride_bytes);
      if (left > 3) LoadTile<3>(out + 48, stride_bytes);
    }
    AddSplitProducts<type>(scratch.weights[part % kTokenSteps], values(part));
    if (part % kTokenSteps != kTokenSteps - 1) continue;
    StoreTile<0>(out, stride_bytes);
    if (left > 1) StoreTile<1>(out + 16, stride_bytes);
    if (left > 2) StoreTile<2>(out + 32, stride_bytes);
    if (left > 3) StoreTile<3>(out + 48, stride_bytes);
  }
}

/// y = fma(x, b, y * a) of n floats, a multiple of 16.
KVIST_INLINE void MergeRow(const float* x, float b, float* y, float a, size_t n) {
  for (size_t i = 0; i < n; i += 16) Store(y + i, Fma(Load(x + i), Set(b), Mul(Load(y + i), Set(a))));
}

template <KvType type>
__attribute__((noinline)) void AttendStored(const AttendShape& shape, const std::byte* queries, const AttendTile& tile,
                                            const AttendSums& sums) {
  alignas(64) Scratch scratch;
  const uint32_t rows = shape.tokens * shape.group, steps = StepsOf(shape.key_dim);
  uint64_t seen = 0;
  for (uint32_t t = 0; t < shape.tokens; ++t) seen |= tile.visible[t];
  if (seen == 0) return;
  const Task task{shape, tile, sums, reinterpret_cast<const Pair*>(queries), seen, rows <= kTileRows};
  uint32_t configured = 0;
  bool widen = true;
  for (uint32_t first = 0; first < rows; first += kTileRows) {
    const uint32_t count = rows - first < kTileRows ? rows - first : kTileRows;
    uint64_t any = 0;
    for (uint32_t t = first / shape.group; t <= (first + count - 1) / shape.group; ++t) any |= tile.visible[t];
    if (any == 0) continue;
    if (count != configured) ConfigureRows(configured = count);
    Scores<type>(task, task.queries + first / kTileRows * steps, count, widen, scratch);
    Soften<type>(shape, tile, first, count, sums, scratch);
    AddValues<type>(task, first, count, widen, scratch);
    widen = false;
  }
  ReleaseTiles();
}

}  // namespace

size_t AttendQueryBytes(const AttendShape& shape) {
  const size_t tiles = (size_t{shape.tokens} * shape.group + kTileRows - 1) / kTileRows;
  return tiles * StepsOf(shape.key_dim) * sizeof(Pair);
}

void AttendPrepare(const AttendShape& shape, const float* queries, size_t stride, float scale, std::byte* out) {
  const uint32_t rows = shape.tokens * shape.group, steps = StepsOf(shape.key_dim);
  const __m512 factor = Set(shape.softcap == 0.0f ? scale * kLog2E : scale);
  auto* pairs = reinterpret_cast<Pair*>(out);
  for (uint32_t row = 0; row < (rows + kTileRows - 1) / kTileRows * kTileRows; ++row) {
    const float* query =
        row < rows ? queries + row / shape.group * stride + row % shape.group * shape.key_dim : nullptr;
    for (uint32_t s = 0; s < steps; ++s) {
      const auto part = [&](uint32_t dim) __attribute__((always_inline)) {
        if (query == nullptr || dim >= shape.key_dim) return Set(0.0f);
        return Mul(LoadFirst(query + dim, shape.key_dim - dim < 16 ? shape.key_dim - dim : 16), factor);
      };
      StoreSplit(pairs[row / kTileRows * steps + s], row % kTileRows, part(s * kStepDims), part(s * kStepDims + 16));
    }
  }
}

void Attend(const AttendShape& shape, const std::byte* queries, const AttendTile& tile, const AttendSums& sums) {
  if (shape.kv_type == KvType::kF16) {
    AttendStored<KvType::kF16>(shape, queries, tile, sums);
  } else {
    AttendStored<KvType::kQ8>(shape, queries, tile, sums);
  }
}

void AttendMerge(const AttendShape& shape, const AttendSums& from, const AttendSums& sums) {
  for (uint32_t row = 0; row < shape.tokens * shape.group; ++row) {
    const float old_max = sums.max[row], new_max = from.max[row];
    if (new_max == -__builtin_inff()) continue;
    const float max = old_max > new_max ? old_max : new_max;
    const float a = Exp2One(old_max - max), b = Exp2One(new_max - max);
    sums.max[row] = max;
    MergeRow(from.sum + row * kPageTokens, b, sums.sum + row * kPageTokens, a, kPageTokens);
    MergeRow(from.acc + row * from.stride, b, sums.acc + row * sums.stride, a, sums.stride);
  }
}

}  // namespace kvist::kernels::amx
