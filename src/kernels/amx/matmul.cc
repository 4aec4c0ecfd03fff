#include "kernels/amx/amx.h"
#include "kernels/avx512/avx512.h"

namespace kvist::kernels::amx {
namespace {

/// Fewer tokens with quantised weights are faster without tiles, which hold 16 and whose weights must be unpacked
/// first; measured. The bits are the same, so these are about speed only.
constexpr uint32_t kTokensMin = 32, kLastTileMin = 12;

}  // namespace

void MatMul(const PackedMatrix& w, const void* activations, size_t activation_stride, uint32_t tokens,
            uint32_t group_begin, uint32_t group_end, float* y, size_t y_stride) {
  if (w.dtype == DType::kF16 || w.dtype == DType::kBF16) {
    HalfMatMul(w, activations, activation_stride, tokens, group_begin, group_end, y, y_stride);
    return;
  }
  uint32_t on_tiles = w.dtype == DType::kF32 || tokens < kTokensMin ? 0 : tokens;
  if (on_tiles % 16 < kLastTileMin) on_tiles -= on_tiles % 16;
  if (on_tiles > 0) {
    QuantizedMatMul(w, activations, activation_stride, on_tiles, group_begin, group_end, y, y_stride);
  }
  if (on_tiles == tokens) return;
  avx512::MatMul(w, static_cast<const std::byte*>(activations) + on_tiles * activation_stride, activation_stride,
                 tokens - on_tiles, group_begin, group_end, y + on_tiles * y_stride, y_stride);
}

}  // namespace kvist::kernels::amx
