#include <immintrin.h>

#include "kernels/amx/amx.h"

// Products with F16 and BF16 weights. Every f32 number is the sum of two bf16 numbers, its upper 16 bits ("high") and
// the rest ("low"): exact for weights (bf16 has no rest), to 2^-16 for activations. A token's sum takes, 32 columns at
// a time, the tile products high x * high w, then high x * low w (F16 only), then low x * high w; low x * low w, 2^-14
// of a product at most, is left out.

namespace kvist::kernels::amx {
namespace {

#include "kernels/avx512/native.inc"
// native.inc first.
#include "kernels/amx/brains.inc"
#include "kernels/amx/product.inc"
#include "kernels/amx/tiles.inc"

constexpr uint32_t kBlock = 32;        ///< Columns of a tile.
constexpr uint32_t kStripBlocks = 64;  ///< Blocks between two visits of y.
constexpr uint32_t kChunkTiles = 8;    ///< Token tiles that share a pass over the weights.
constexpr uint32_t kAheadBytes = 4096;

/// One block of 16 tokens, or of 16 matrix rows by pairs of columns.
using BrainTile = uint16_t[16][32];
constexpr size_t kRowBytes = sizeof(BrainTile) / 16;

/// Working memory of a product, read from the second-level cache.
struct alignas(64) Scratch {
  BrainTile w_high[kPair][kStripBlocks], w_low[kPair][kStripBlocks];
  BrainTile x_high[kChunkTiles][kStripBlocks], x_low[kChunkTiles][kStripBlocks];
  float corner[kTile][kRowGroup];
};

/// The tokens and columns of one pass over the weights.
struct Pass {
  uint32_t first, tokens;  ///< Tokens.
  uint32_t begin, cols;    ///< Columns.
  uint32_t Blocks() const { return (cols + kBlock - 1) / kBlock; }
};

/// How many of the 16 columns from `column` lie below `end`.
KVIST_INLINE uint32_t Existing(uint32_t column, uint32_t end) {
  return column >= end ? 0 : end - column < 16 ? end - column : 16;
}

void SplitActivations(const Task& task, const Pass& pass, Scratch& s) {
  for (uint32_t i = 0; i < pass.tokens; ++i) {
    const auto* row = reinterpret_cast<const float*>(task.x + (pass.first + i) * task.x_stride) + pass.begin;
    for (uint32_t b = 0; b < pass.Blocks(); ++b) {
      const uint32_t column = b * kBlock;
      StoreHighLow(s.x_high[i / kTile][b][i % kTile], s.x_low[i / kTile][b][i % kTile],
                   LoadFirst(row + column, Existing(column, pass.cols)),
                   LoadFirst(row + column + 16, Existing(column + 16, pass.cols)));
    }
  }
}

/// Weights of type F16: 16 rows of a column are 16 halves.
struct Half {
  static constexpr bool kLow = true;
  KVIST_INLINE void StorePair(const uint16_t* pair, uint32_t existing, uint16_t* high, uint16_t* low) {
    const __m512 a = LoadHalf(pair), b = existing > 1 ? LoadHalf(pair + kRowGroup) : Set(0.0f);
    _mm512_store_si512(high, UpperHalves(a, b));
    _mm512_store_si512(low, UpperHalves(Rest(a), Rest(b)));
  }
};

struct Brain {
  static constexpr bool kLow = false;
  KVIST_INLINE void StorePair(const uint16_t* pair, uint32_t existing, uint16_t* high, uint16_t* /*low*/) {
    alignas(64) static constexpr uint16_t kInterleave[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                             21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                             11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __mmask32 both = existing > 1 ? 0xffffffff : 0xffff;
    const __m512i columns = _mm512_maskz_loadu_epi16(both, pair);
    _mm512_store_si512(high, _mm512_permutexvar_epi16(_mm512_load_si512(kInterleave), columns));
  }
};

/// Block `b` of the pass, of the group in place `g`, whose weights start at `group`, into block `to` of its place.
template <class Weights>
KVIST_INLINE void UnpackBlock(const uint16_t* group, const Pass& pass, uint32_t b, uint32_t g, uint32_t to,
                              Scratch& s) {
  const uint32_t left = pass.cols - b * kBlock, pairs = left < kBlock ? (left + 1) / 2 : kBlock / 2;
  const uint16_t* columns = group + (size_t{pass.begin} + b * kBlock) * kRowGroup;
  for (uint32_t pair = 0; pair < pairs; ++pair, columns += 2 * kRowGroup) {
    __builtin_prefetch(reinterpret_cast<const std::byte*>(columns) + kAheadBytes, 0, 2);
    Weights::StorePair(columns, left - 2 * pair, s.w_high[g][to][pair], s.w_low[g][to][pair]);
  }
  for (uint32_t pair = pairs; pair < kBlock / 2; ++pair) {
    _mm512_store_si512(s.w_high[g][to][pair], _mm512_setzero_si512());
    _mm512_store_si512(s.w_low[g][to][pair], _mm512_setzero_si512());
  }
}

/// Sum `sum` starts as zero, or as what earlier columns left in y.
template <int sum>
KVIST_INLINE void StartSum(const Corner& c, bool first, Scratch& s) {
  if (first) {
    ZeroTile<sum>();
  } else if (c.rows == kRowGroup) {
    LoadTile<sum>(c.y, c.y_stride * sizeof(float));
  } else {
    for (uint32_t t = 0; t < c.tokens; ++t) Store(s.corner[t], LoadFirst(c.y + t * c.y_stride, c.rows));
    LoadTile<sum>(s.corner, sizeof(s.corner[0]));
  }
}

template <int sum>
KVIST_INLINE void EndSum(const Corner& c, Scratch& s) {
  if (c.rows == kRowGroup) {
    StoreTile<sum>(c.y, c.y_stride * sizeof(float));
    return;
  }
  StoreTile<sum>(s.corner, sizeof(s.corner[0]));
  for (uint32_t t = 0; t < c.tokens; ++t) StoreFirst(c.y + t * c.y_stride, Load(s.corner[t]), c.rows);
}

/// One of the three products of a block: activations in tiles 4 and 5, weights in 6 and 7.
template <uint32_t tiles, uint32_t groups>
KVIST_INLINE void AddProducts() {
  DotBrains<0, 4, 6>();
  if constexpr (groups > 1) DotBrains<1, 4, 7>();
  if constexpr (tiles > 1) DotBrains<2, 5, 6>();
  if constexpr (tiles > 1 && groups > 1) DotBrains<3, 5, 7>();
}

template <int first, uint32_t count>
KVIST_INLINE void LoadTwo(const BrainTile (*place)[kStripBlocks], uint32_t b) {
  LoadTile<first>(place[0][b], kRowBytes);
  if constexpr (count > 1) LoadTile<first + 1>(place[1][b], kRowBytes);
}

/// Adds block `b`, whose weights are block `from` of their places, for the token tiles from `tile`.
template <class Weights, uint32_t tiles, uint32_t groups>
KVIST_INLINE void AddBlock(const Scratch& s, uint32_t tile, uint32_t b, uint32_t from) {
  LoadTwo<4, tiles>(s.x_high + tile, b);
  if constexpr (Weights::kLow) {
    LoadTwo<6, groups>(s.w_high, from);
    AddProducts<tiles, groups>();
    LoadTwo<6, groups>(s.w_low, from);
    AddProducts<tiles, groups>();
  }
  LoadTwo<6, groups>(s.w_high, from);
  if constexpr (!Weights::kLow) AddProducts<tiles, groups>();
  LoadTwo<4, tiles>(s.x_low + tile, b);
  AddProducts<tiles, groups>();
}

/// Sums of `groups` groups from `group` and `tiles` token tiles from `tile`, whose blocks `add` adds.
template <uint32_t tiles, uint32_t groups, class Add>
KVIST_INLINE void Sum(const Task& task, const Pass& pass, uint32_t tile, uint32_t group, Scratch& s, Add add) {
  const bool first = pass.begin == 0;
  const auto corner = [&](uint32_t t, uint32_t g) __attribute__((always_inline)) {
    return CornerOf(task, pass.first, pass.tokens, tile + t, group + g);
  };
  StartSum<0>(corner(0, 0), first, s);
  if constexpr (groups > 1) StartSum<1>(corner(0, 1), first, s);
  if constexpr (tiles > 1) StartSum<2>(corner(1, 0), first, s);
  if constexpr (tiles > 1 && groups > 1) StartSum<3>(corner(1, 1), first, s);
  add();
  EndSum<0>(corner(0, 0), s);
  if constexpr (groups > 1) EndSum<1>(corner(0, 1), s);
  if constexpr (tiles > 1) EndSum<2>(corner(1, 0), s);
  if constexpr (tiles > 1 && groups > 1) EndSum<3>(corner(1, 1), s);
}

/// Token tiles from `tile` against unpacked groups.
template <class Weights, uint32_t tiles, uint32_t groups>
void RunTiles(const Task& task, const Pass& pass, uint32_t tile, uint32_t group, Scratch& s) {
  Sum<tiles, groups>(
      task, pass, tile, group, s, [&]() __attribute__((always_inline)) {
        for (uint32_t b = 0; b < pass.Blocks(); ++b) AddBlock<Weights, tiles, groups>(s, tile, b, b);
      });
}

/// Where a group's weights start.
KVIST_INLINE const uint16_t* GroupAt(const Task& task, uint32_t group) {
  const size_t group_bytes = (size_t{task.w.cols} * kRowGroup * sizeof(uint16_t) + 63) / 64 * 64;
  return reinterpret_cast<const uint16_t*>(task.w.data + group * group_bytes);
}

/// One tile of tokens, where each weight is used once: unpacking keeps a block ahead of multiplying, no more, so that
/// what it writes stays in the first-level cache.
template <class Weights, uint32_t groups>
void RunOneTile(const Task& task, const Pass& pass, uint32_t group, Scratch& s) {
  const auto unpack = [&](uint32_t b) __attribute__((always_inline)) {
    for (uint32_t g = 0; g < groups; ++g) UnpackBlock<Weights>(GroupAt(task, group + g), pass, b, g, b % 2, s);
  };
  ConfigureRows(pass.tokens);
  Sum<1, groups>(
      task, pass, 0, group, s, [&]() __attribute__((always_inline)) {
        unpack(0);
        for (uint32_t b = 0; b < pass.Blocks(); ++b) {
          if (b + 1 < pass.Blocks()) unpack(b + 1);
          AddBlock<Weights, 1, groups>(s, 0, b, b % 2);
        }
      });
}

/// One pass for `groups` groups from `group` and all tokens of the pass.
template <class Weights, uint32_t groups>
void RunGroups(const Task& task, const Pass& pass, uint32_t group, Scratch& s) {
  if (pass.tokens <= kTile) {
    RunOneTile<Weights, groups>(task, pass, group, s);
    return;
  }
  for (uint32_t g = 0; g < groups; ++g) {
    const uint16_t* weights = GroupAt(task, group + g);
    for (uint32_t b = 0; b < pass.Blocks(); ++b) UnpackBlock<Weights>(weights, pass, b, g, b, s);
  }
  const uint32_t full = pass.tokens / kTile, rest = pass.tokens % kTile;
  ConfigureRows(kTile);
  uint32_t tile = 0;
  for (; tile + kPair <= full; tile += kPair) RunTiles<Weights, kPair, groups>(task, pass, tile, group, s);
  if (tile < full) RunTiles<Weights, 1, groups>(task, pass, tile++, group, s);
  if (rest == 0) return;
  ConfigureRows(rest);
  RunTiles<Weights, 1, groups>(task, pass, tile, group, s);
}

template <class Weights>
void Run(const Task& task, uint32_t group_begin, uint32_t group_end) {
  Scratch s;  // 1.3 MB, of which the pages that the product's size needs are touched.
  constexpr uint32_t kChunk = kChunkTiles * kTile, kStrip = kStripBlocks * kBlock;
  for (uint32_t first = 0; first < task.tokens; first += kChunk) {
    const uint32_t tokens = task.tokens - first < kChunk ? task.tokens - first : kChunk;
    for (uint32_t begin = 0; begin < task.w.cols; begin += kStrip) {
      const Pass pass{first, tokens, begin, task.w.cols - begin < kStrip ? task.w.cols - begin : kStrip};
      SplitActivations(task, pass, s);
      uint32_t group = group_begin;
      for (; group + kPair <= group_end; group += kPair) RunGroups<Weights, kPair>(task, pass, group, s);
      if (group < group_end) RunGroups<Weights, 1>(task, pass, group, s);
    }
  }
  ReleaseTiles();
}

}  // namespace

void HalfMatMul(const PackedMatrix& w, const void* activations, size_t activation_stride, uint32_t tokens,
                uint32_t group_begin, uint32_t group_end, float* y, size_t y_stride) {
  const Task task{w, static_cast<const std::byte*>(activations), activation_stride, tokens, y, y_stride};
  if (w.dtype == DType::kF16) {
    Run<Half>(task, group_begin, group_end);
  } else {
    Run<Brain>(task, group_begin, group_end);
  }
}

}  // namespace kvist::kernels::amx
