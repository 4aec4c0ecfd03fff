#include "tensor/dtype.h"

#include <array>

#include "base/check.h"

namespace kvist {
namespace {

constexpr std::array kDTypes{
    DTypeInfo{DType::kF32, "f32", 1, 4},         DTypeInfo{DType::kF16, "f16", 1, 2},
    DTypeInfo{DType::kQ4_0, "q4_0", 32, 18},     DTypeInfo{DType::kQ4_1, "q4_1", 32, 20},
    DTypeInfo{DType::kQ5_0, "q5_0", 32, 22},     DTypeInfo{DType::kQ5_1, "q5_1", 32, 24},
    DTypeInfo{DType::kQ8_0, "q8_0", 32, 34},     DTypeInfo{DType::kQ2_K, "q2_k", 256, 84},
    DTypeInfo{DType::kQ3_K, "q3_k", 256, 110},   DTypeInfo{DType::kQ4_K, "q4_k", 256, 144},
    DTypeInfo{DType::kQ5_K, "q5_k", 256, 176},   DTypeInfo{DType::kQ6_K, "q6_k", 256, 210},
    DTypeInfo{DType::kIQ4_NL, "iq4_nl", 32, 18}, DTypeInfo{DType::kIQ4_XS, "iq4_xs", 256, 136},
    DTypeInfo{DType::kBF16, "bf16", 1, 2},       DTypeInfo{DType::kMXFP4, "mxfp4", 32, 17},
};

/// Types of the format that kvist does not read, so that an error can name them.
struct UnsupportedDType {
  uint32_t ggml_type;
  std::string_view name;
};

constexpr std::array kUnsupported{
    UnsupportedDType{4, "q4_2"},        UnsupportedDType{5, "q4_3"},        UnsupportedDType{9, "q8_1"},
    UnsupportedDType{15, "q8_k"},       UnsupportedDType{16, "iq2_xxs"},    UnsupportedDType{17, "iq2_xs"},
    UnsupportedDType{18, "iq3_xxs"},    UnsupportedDType{19, "iq1_s"},      UnsupportedDType{21, "iq3_s"},
    UnsupportedDType{22, "iq2_s"},      UnsupportedDType{24, "i8"},         UnsupportedDType{25, "i16"},
    UnsupportedDType{26, "i32"},        UnsupportedDType{27, "i64"},        UnsupportedDType{28, "f64"},
    UnsupportedDType{29, "iq1_m"},      UnsupportedDType{31, "q4_0_4_4"},   UnsupportedDType{32, "q4_0_4_8"},
    UnsupportedDType{33, "q4_0_8_8"},   UnsupportedDType{34, "tq1_0"},      UnsupportedDType{35, "tq2_0"},
    UnsupportedDType{36, "iq4_nl_4_4"}, UnsupportedDType{37, "iq4_nl_4_8"}, UnsupportedDType{38, "iq4_nl_8_8"},
    UnsupportedDType{40, "nvfp4"},
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

std::string_view UnsupportedDTypeName(uint32_t ggml_type) {
  for (const UnsupportedDType& entry : kUnsupported) {
    if (entry.ggml_type == ggml_type) return entry.name;
  }
  return {};
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
