#include "kernels/amx/amx.h"
#include "kernels/avx512/avx512.h"

namespace kvist::kernels::amx {

void MatMul(const PackedMatrix& w, const void* activations, size_t activation_stride, uint32_t tokens,
            uint32_t group_begin, uint32_t group_end, float* y, size_t y_stride) {
  avx512::MatMul(w, activations, activation_stride, tokens, group_begin, group_end, y, y_stride);
}

}  // namespace kvist::kernels::amx
