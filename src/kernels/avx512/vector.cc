#include <immintrin.h>

#include "kernels/amx/amx.h"
#include "kernels/avx512/avx512.h"
#include "kernels/kernel_table.h"
#include "kernels/scalar_math.h"

namespace kvist::kernels::avx512 {
namespace {

#include "kernels/avx512/native.inc"
// native.inc first: the others are written in its words.
#include "kernels/generic/math.inc"
// math.inc before its users.
#include "kernels/generic/elementwise.inc"
// attention.inc uses the functions of elementwise.inc.
#include "kernels/generic/attention.inc"

constexpr KernelTable kTable{
    .isa = Isa::kAvx512,
    .quantize_rows = QuantizeRows,
    .matmul = MatMul,
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

constexpr KernelTable WithAmx(KernelTable table) {
  table.isa = Isa::kAmx;
  table.matmul = amx::MatMul;
  table.attend_query_bytes = amx::AttendQueryBytes;
  table.attend_prepare = amx::AttendPrepare;
  table.attend = amx::Attend;
  table.attend_merge = amx::AttendMerge;
  return table;
}

}  // namespace

constinit const KernelTable kKernels = kTable;
constinit const KernelTable kKernelsWithAmx = WithAmx(kTable);

}  // namespace kvist::kernels::avx512
