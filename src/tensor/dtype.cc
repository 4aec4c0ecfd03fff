#include "tensor/dtype.h"

#include <array>

#include "base/check.h"

namespace kvist {
namespace {

constexpr std::array kDTypes{
    DTypeInfo{DType::kF32, "f32", 1, 4},       DTypeInfo{DType::kF16, "f16", 1, 2},
    DTypeInfo{DType::kQ4_0, "q4_0", 32, 18},   DTypeInfo{DType::kQ4_1, "q4_1", 32, 20},
    DTypeInfo{DType::kQ5_0, "q5_0", 32, 22},   DTypeInfo{DType::kQ5_1, "q5_1", 32, 24},
    DTypeInfo{DType::kQ8_0, "q8_0", 32, 34},   DTypeInfo{DType::kQ4_K, "q4_k", 256, 144},
    DTypeInfo{DType::kQ5_K, "q5_k", 256, 176}, DTypeInfo{DType::kQ6_K, "q6_k", 256, 210},
    DTypeInfo{DType::kBF16, "bf16", 1, 2},
};

}  // namespace

std::optional<DTypeInfo> FindDType(uint32_t ggml_type) {
  for (const DTypeInfo& info : kDTypes) {
    if (static_cast<uint32_t>(info.dtype) == ggml_type) return info;
  }
  return std::nullopt;
}

std::optional<DTypeInfo> FindDType(std::string_view name) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.name == name) return info;
  }
  return std::nullopt;
}

const DTypeInfo& InfoOf(DType dtype) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.dtype == dtype) return info;
  }
  CheckFailed(__FILE__, __LINE__, "known dtype");
}

size_t RowBytes(DType dtype, size_t elements) {
  const DTypeInfo& info = InfoOf(dtype);
  KVIST_CHECK(elements % info.block_elements == 0);
  return elements / info.block_elements * info.block_bytes;
}

}  // namespace kvist
