#include <immintrin.h>

#include "kernels/avx2/avx2.h"
#include "kernels/kernel_table.h"
#include "kernels/scalar_math.h"

namespace kvist::kernels::avx2 {
namespace {

#include "kernels/avx2/native.inc"
// native.inc first: the others are written in its words.
#include "kernels/generic/math.inc"
// math.inc before its users.
#include "kernels/generic/elementwise.inc"
// attention.inc uses the functions of elementwise.inc.
#include "kernels/generic/attention.inc"

}  // namespace

const KernelTable kKernels{
    .isa = Isa::kAvx2,
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

}  // namespace kvist::kernels::avx2
