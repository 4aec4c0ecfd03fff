#pragma once

/// @file
/// Element types of stored tensors and their block geometry. Numbers are GGUF's `ggml_type` values, which are a
/// file format and never change.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvist {

enum class DType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBF16 = 30,
  kMXFP4 = 39,
};

/// Geometry of one type: `block_elements` consecutive elements of a row take `block_bytes` bytes.
struct DTypeInfo {
  DType dtype;
  std::string_view name;  ///< Lower case, e.g. "q4_k".
  uint32_t block_elements;
  uint32_t block_bytes;
};

/// Every supported type, in GGUF number order.
std::optional<DTypeInfo> FindDType(uint32_t ggml_type);
std::optional<DTypeInfo> FindDType(std::string_view name);

/// Name of a ggml_type that exists in the format but has no DType here, e.g. "iq2_xs"; empty for unknown numbers.
std::string_view UnsupportedDTypeName(uint32_t ggml_type);

/// REQUIRES: `dtype` is one of the enumerators.
const DTypeInfo& InfoOf(DType dtype);

/// Bytes of a row of `elements`. REQUIRES: elements is a multiple of the type's block.
size_t RowBytes(DType dtype, size_t elements);

}  // namespace kvist
