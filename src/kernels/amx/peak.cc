#include <immintrin.h>

#include "kernels/amx/amx.h"

namespace kvist::kernels::amx {
namespace {

#include "kernels/avx512/native.inc"
// native.inc first.
#include "kernels/amx/tiles.inc"

constexpr uint64_t kTileRows = 16, kTileRowBytes = 64;

}  // namespace

uint64_t PeakInt8(uint64_t rounds) {
  ConfigureTiles(kFullTiles);
  for (uint64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 4
    for (int repeat = 0; repeat < 4; ++repeat) {
      DotBytes<0, 6, 7>();
      DotBytes<1, 6, 7>();
      DotBytes<2, 6, 7>();
      DotBytes<3, 6, 7>();
    }
  }
  ReleaseTiles();
  return rounds * 16 * kTileRows * kTileRows * kTileRowBytes;
}

uint64_t PeakBf16(uint64_t rounds) {
  ConfigureTiles(kFullTiles);
  for (uint64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 4
    for (int repeat = 0; repeat < 4; ++repeat) {
      DotBrains<0, 6, 7>();
      DotBrains<1, 6, 7>();
      DotBrains<2, 6, 7>();
      DotBrains<3, 6, 7>();
    }
  }
  ReleaseTiles();
  return rounds * 16 * kTileRows * kTileRows * kTileRowBytes / 2;
}

}  // namespace kvist::kernels::amx
