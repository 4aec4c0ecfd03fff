#include <immintrin.h>

#include "kernels/amx/amx.h"
#include "kernels/avx512/avx512.h"
#include "kernels/kernel_table.h"
#include "kernels/scalar_math.h"

namespace kvist::kernels::avx512 {
namespace {

#include "kernels/avx512/native.inc"
// native.inc first: the others are written in its words.
#include "kernels/generic/elementwise.inc"
// attention.inc uses the functions of elementwise.inc.
#include "kernels/generic/attention.inc"

constexpr KernelTable TableWith(Isa isa, decltype(KernelTable::matmul) matmul) {
  return {
      .isa = isa,
      .quantize_rows = QuantizeRows,
      .matmul = matmul,
      .rms_norm = RmsNorm,
      .rope = Rope,
      .silu_mul = SiluMul,
      .gelu_tanh_mul = GeluTanhMul,
      .add = AddRows,
      .scale = ScaleRow,
      .softcap = Softcap,
      .store_key = StoreKeyRow,
      .store_value = StoreValueRow,
      .attend_query_bytes = AttendQueryBytes,
      .attend_prepare = AttendPrepare,
      .attend = Attend,
      .attend_merge = AttendMerge,
      .attend_finish = AttendFinish,
  };
}

}  // namespace

constinit const KernelTable kKernels = TableWith(Isa::kAvx512, MatMul);
constinit const KernelTable kKernelsWithAmx = TableWith(Isa::kAmx, amx::MatMul);

}  // namespace kvist::kernels::avx512
