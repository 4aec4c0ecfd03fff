#include <immintrin.h>

#include "kernels/amx/amx.h"
#include "kernels/packed_layout.h"

// Block sums come from bf16 tiles, not from int8 ones: integers up to 8 bits are exact in bf16, every partial sum of a
// block is an integer below 2^24 and so exact in f32 in whatever order the tile adds, and the sums need no conversion.
// Integers times their sub-scales go in as one tile or, Q6_K's 14 bits, as two.
//
// Tile and vector instructions hardly overlap (they share ports), so a panel of blocks is multiplied first, its sums
// going to the first-level cache, and then scaled and added up block by block, as kernel_table.h defines.

namespace kvist::kernels::amx {
namespace {

#include "kernels/avx512/native.inc"
// native.inc first.
#include "kernels/amx/brains.inc"
#include "kernels/amx/product.inc"
#include "kernels/amx/tiles.inc"
#include "kernels/generic/codes.inc"
// blocks.inc uses codes.inc.
#include "kernels/avx512/blocks.inc"
// unpack.inc uses blocks.inc and brains.inc.
#include "kernels/amx/unpack.inc"

constexpr uint32_t kPanelBlocks = 4;   ///< Blocks that are multiplied before their sums are added up.
constexpr uint32_t kStripBlocks = 64;  ///< Blocks between two visits of y, whose rows may lie far apart.
constexpr uint32_t kChunkTiles = 16;   ///< Token tiles that share a pass over the weights.

using SumTile = float[kTile * kRowGroup];  ///< [tokens][rows]
constexpr size_t kSumRowBytes = kRowGroup * sizeof(float);

/// Working memory of a product. What is written again and again, `sums` and `acc`, must stay in the first-level cache:
/// stores that miss it cost three times what loads do. The rest is read from the second level.
struct alignas(64) Scratch {
  SumTile sums[kPair][kPair][kPanelBlocks + 1];  ///< [token tile][group]; block b at b + 1.
  SumTile acc[kPair][kPair];                     ///< [token tile][group]
  float d[kPair][kStripBlocks][kRowGroup], m[2][kPair][kStripBlocks][kRowGroup];
  BrainTile weights[kPair][kStripBlocks], lower[kPair][kStripBlocks];
  BrainTile activations[kChunkTiles][kStripBlocks];
  float scale[kChunkTiles][kStripBlocks][kTile];
  float scaled_sum[2][kChunkTiles][kStripBlocks][kTile];  ///< What meets m: of a block, or of its two halves.
};

/// 32 activations in the order of a weight tile's columns.
KVIST_INLINE void PackBlock(const int8_t* q, uint16_t* out) {
  const __m256i swap_middle =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15));
  __m256i v = _mm256_shuffle_epi8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(q)), swap_middle);
  __m512 first = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(v)));
  __m512 last = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(v, 1)));
  StoreBrains(out, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(last, first)));
}

/// Activations of `tokens` tokens, blocks [begin, begin + n); missing tokens of the last tile are zero.
template <uint32_t mins>
void PackActivations(const Task& task, uint32_t first, uint32_t tokens, uint32_t begin, uint32_t n, Scratch& s) {
  const size_t meta_offset = (size_t{task.w.cols} + 63) / 64 * 64;
  for (uint32_t i = 0; i < (tokens + kTile - 1) / kTile * kTile; ++i) {
    const uint32_t tile = i / kTile, t = i % kTile;
    const std::byte* row = task.x + (first + i) * task.x_stride;
    const auto* q = reinterpret_cast<const int8_t*>(row) + begin * 32;
    const auto* meta = reinterpret_cast<const ActivationMeta*>(row + meta_offset) + begin;
    for (uint32_t b = 0; b < n; ++b) {
      if (i < tokens) {
        PackBlock(q + 32 * b, s.activations[tile][b][t]);
      } else {
        StoreBrains(s.activations[tile][b][t], _mm512_setzero_si512());
      }
      s.scale[tile][b][t] = i < tokens ? meta[b].scale : 0;
      if constexpr (mins == 1) s.scaled_sum[0][tile][b][t] = i < tokens ? meta[b].scaled_sum : 0;
      if constexpr (mins == 2) {
        s.scaled_sum[0][tile][b][t] = i < tokens ? meta[b].scale * meta[b].sum_first : 0;
        s.scaled_sum[1][tile][b][t] = i < tokens ? meta[b].scale * (meta[b].sum - meta[b].sum_first) : 0;
      }
    }
  }
}

/// Blocks [begin, begin + n) of a group into place `g`.
template <DType dtype>
void UnpackStrip(const uint8_t* group, uint32_t begin, uint32_t n, uint32_t g, Scratch& s) {
  using Unit = PackedUnit<dtype>;
  for (uint32_t b = 0; b < n; ++b) {
    const uint8_t* unit = group + (begin + b) / Unit::kBlocks * size_t{Unit::kBytes};
    const uint32_t in_unit = (begin + b) % Unit::kBlocks;
    BlockScales scales = LoadScales<dtype>(unit, in_unit);
    Store(s.d[g][b], scales.d);
    for (uint32_t i = 0; i < Unit::kMins; ++i) Store(s.m[i][g][b], scales.m[i]);
    UnpackTile<dtype>(unit, in_unit, scales, s.weights[g][b], s.lower[g][b]);
  }
}

constexpr size_t kRowBytes = sizeof(BrainTile) / 16;

/// Multiplies one tile of sums; before that the last block's sums leave the register.
template <int sum, int a, int b>
KVIST_INLINE void NextProduct(SumTile& last) {
  StoreTile<sum>(last, kSumRowBytes);
  ZeroTile<sum>();
  DotBrains<sum, a, b>();
}

/// Sums of `n` blocks from `begin` for `groups` groups and `tiles` token tiles, whose activations are x and those
/// after. Registers: sums 0..3, activations 4 and 5, weights 6 and 7.
template <uint32_t tiles, uint32_t groups, bool two_planes>
void Multiply(const BrainTile (*x)[kStripBlocks], uint32_t begin, uint32_t n, Scratch& s) {
  for (uint32_t b = 0; b < n; ++b) {
    LoadTile<4>(x[0][begin + b], kRowBytes);
    LoadTile<6>(s.weights[0][begin + b], kRowBytes);
    NextProduct<0, 4, 6>(s.sums[0][0][b]);
    if constexpr (groups > 1) {
      LoadTile<7>(s.weights[1][begin + b], kRowBytes);
      NextProduct<1, 4, 7>(s.sums[0][1][b]);
    }
    if constexpr (tiles > 1) {
      LoadTile<5>(x[1][begin + b], kRowBytes);
      NextProduct<2, 5, 6>(s.sums[1][0][b]);
      if constexpr (groups > 1) NextProduct<3, 5, 7>(s.sums[1][1][b]);
    }
    if constexpr (two_planes) {
      LoadTile<6>(s.lower[0][begin + b], kRowBytes);
      DotBrains<0, 4, 6>();
      if constexpr (groups > 1) {
        LoadTile<7>(s.lower[1][begin + b], kRowBytes);
        DotBrains<1, 4, 7>();
      }
      if constexpr (tiles > 1) DotBrains<2, 5, 6>();
      if constexpr (tiles > 1 && groups > 1) DotBrains<3, 5, 7>();
    }
  }
  StoreTile<0>(s.sums[0][0][n], kSumRowBytes);
  if constexpr (groups > 1) StoreTile<1>(s.sums[0][1][n], kSumRowBytes);
  if constexpr (tiles > 1) StoreTile<2>(s.sums[1][0][n], kSumRowBytes);
  if constexpr (tiles > 1 && groups > 1) StoreTile<3>(s.sums[1][1][n], kSumRowBytes);
}

/// What Accumulate reads.
struct Panel {
  const SumTile* sums;                  ///< [blocks]
  const float (*d)[kRowGroup];          ///< [blocks]
  const float (*m[2])[kRowGroup];       ///< [mins][blocks]
  const float (*scale)[kTile];          ///< [blocks]
  const float (*scaled_sum[2])[kTile];  ///< [mins][blocks]
  uint32_t blocks;
};

/// acc += scaled sums, block by block.
template <uint32_t mins>
__attribute__((noinline)) void Accumulate(const Panel& p, SumTile& out) {
  Native acc[kTile];
#pragma GCC unroll 16
  for (uint32_t t = 0; t < kTile; ++t) acc[t] = Load(out + t * kRowGroup);
  for (uint32_t b = 0; b < p.blocks; ++b) {
    const Native d = Load(p.d[b]);
    const float* sums = p.sums[b];
    const float* scale = p.scale[b];
#pragma GCC unroll 16
    for (uint32_t t = 0; t < kTile; ++t) {
      acc[t] = Fma(Mul(d, Set(scale[t])), Load(sums + t * kRowGroup), acc[t]);
#pragma GCC unroll 2
      for (uint32_t i = 0; i < mins; ++i) acc[t] = Fma(Load(p.m[i][b]), Set(p.scaled_sum[i][b][t]), acc[t]);
    }
  }
#pragma GCC unroll 16
  for (uint32_t t = 0; t < kTile; ++t) Store(out + t * kRowGroup, acc[t]);
}

/// The tokens and blocks of one pass over the weights.
struct Pass {
  uint32_t first, tokens;  ///< Tokens.
  uint32_t begin, blocks;  ///< Blocks of columns.
};

KVIST_INLINE void LoadCorner(const Corner& c, SumTile& acc) {
  for (uint32_t t = 0; t < c.tokens; ++t) Store(acc + t * kRowGroup, LoadFirst(c.y + t * c.y_stride, c.rows));
}

KVIST_INLINE void StoreCorner(const Corner& c, const SumTile& acc) {
  for (uint32_t t = 0; t < c.tokens; ++t) StoreFirst(c.y + t * c.y_stride, Load(acc + t * kRowGroup), c.rows);
}

/// One pass for `groups` groups from `group` and `tiles` token tiles from `tile`.
template <DType dtype, uint32_t tiles, uint32_t groups>
void RunTiles(const Task& task, const Pass& pass, uint32_t tile, uint32_t group, Scratch& s) {
  __builtin_memset(s.acc, 0, sizeof(s.acc));
  for (uint32_t t = 0; t < tiles && pass.begin > 0; ++t) {
    for (uint32_t g = 0; g < groups; ++g)
      LoadCorner(CornerOf(task, pass.first, pass.tokens, tile + t, group + g), s.acc[t][g]);
  }
  for (uint32_t begin = 0; begin < pass.blocks; begin += kPanelBlocks) {
    const uint32_t n = pass.blocks - begin < kPanelBlocks ? pass.blocks - begin : kPanelBlocks;
    Multiply<tiles, groups, kPlanes<dtype> == 2>(s.activations + tile, begin, n, s);
    for (uint32_t t = 0; t < tiles; ++t) {
      for (uint32_t g = 0; g < groups; ++g) {
        Accumulate<PackedUnit<dtype>::kMins>(
            {.sums = s.sums[t][g] + 1,
             .d = s.d[g] + begin,
             .m = {s.m[0][g] + begin, s.m[1][g] + begin},
             .scale = s.scale[tile + t] + begin,
             .scaled_sum = {s.scaled_sum[0][tile + t] + begin, s.scaled_sum[1][tile + t] + begin},
             .blocks = n},
            s.acc[t][g]);
      }
    }
  }
  for (uint32_t t = 0; t < tiles; ++t) {
    for (uint32_t g = 0; g < groups; ++g)
      StoreCorner(CornerOf(task, pass.first, pass.tokens, tile + t, group + g), s.acc[t][g]);
  }
}

/// One pass for `groups` groups from `group` and all tokens of the pass.
template <DType dtype, uint32_t groups>
void RunGroups(const Task& task, const Pass& pass, uint32_t group, Scratch& s) {
  using Unit = PackedUnit<dtype>;
  const size_t group_bytes = size_t{(task.w.cols + Unit::kColumns - 1) / Unit::kColumns} * Unit::kBytes;
  const auto* weights = reinterpret_cast<const uint8_t*>(task.w.data + group * group_bytes);
  for (uint32_t g = 0; g < groups; ++g) {
    UnpackStrip<dtype>(weights + g * group_bytes, pass.begin, pass.blocks, g, s);
  }
  const uint32_t tiles = (pass.tokens + kTile - 1) / kTile;
  uint32_t tile = 0;
  for (; tile + kPair <= tiles; tile += kPair) RunTiles<dtype, kPair, groups>(task, pass, tile, group, s);
  if (tile < tiles) RunTiles<dtype, 1, groups>(task, pass, tile, group, s);
}

/// Not inlined: the working memory of all types would add up in the one frame of QuantizedMatMul where a compiler does
/// not let them share it (with AddressSanitizer), and overflow the stack.
template <DType dtype>
[[gnu::noinline]] void Run(const Task& task, uint32_t group_begin, uint32_t group_end) {
  Scratch s;  // 1.5 MB, of which the pages that the product's size needs are touched.
  ConfigureTiles(kFullTiles);
  const uint32_t blocks = task.w.cols / 32;
  constexpr uint32_t kChunk = kChunkTiles * kTile;
  for (uint32_t first = 0; first < task.tokens; first += kChunk) {
    const uint32_t tokens = task.tokens - first < kChunk ? task.tokens - first : kChunk;
    for (uint32_t begin = 0; begin < blocks; begin += kStripBlocks) {
      const Pass pass{first, tokens, begin, blocks - begin < kStripBlocks ? blocks - begin : kStripBlocks};
      PackActivations<PackedUnit<dtype>::kMins>(task, first, tokens, begin, pass.blocks, s);
      uint32_t group = group_begin;
      for (; group + kPair <= group_end; group += kPair) RunGroups<dtype, kPair>(task, pass, group, s);
      if (group < group_end) RunGroups<dtype, 1>(task, pass, group, s);
    }
  }
  ReleaseTiles();
}

}  // namespace

void QuantizedMatMul(const PackedMatrix& w, const void* activations, size_t activation_stride, uint32_t tokens,
                     uint32_t group_begin, uint32_t group_end, float* y, size_t y_stride) {
  const Task task{w, static_cast<const std::byte*>(activations), activation_stride, tokens, y, y_stride};
  switch (w.dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return;
#define KVIST_MATMUL(type) \
  case DType::type:        \
    return Run<DType::type>(task, group_begin, group_end)
      KVIST_MATMUL(kQ8_0);
      KVIST_MATMUL(kQ5_0);
      KVIST_MATMUL(kQ4_0);
      KVIST_MATMUL(kQ5_1);
      KVIST_MATMUL(kQ4_1);
      KVIST_MATMUL(kQ5_K);
      KVIST_MATMUL(kQ4_K);
      KVIST_MATMUL(kQ6_K);
      KVIST_MATMUL(kQ3_K);
      KVIST_MATMUL(kQ2_K);
      KVIST_MATMUL(kIQ4_NL);
      KVIST_MATMUL(kIQ4_XS);
      KVIST_MATMUL(kMXFP4);
#undef KVIST_MATMUL
  }
}

}  // namespace kvist::kernels::amx
