#pragma once

/// @file
/// Numbers of the packed layout that packed.h describes, for code that walks it. Plain data: also compiled with wider
/// instruction sets, so no functions here.

#include <cstdint>

#include "tensor/dtype.h"

namespace kvist::kernels {

inline constexpr uint32_t kGroupVectorBytes = 64;  ///< One int vector: 16 rows x 4 columns.
inline constexpr uint32_t kBlockVectors = 8;       ///< Int vectors of a block of 32 columns.

/// Geometry of one quantised type. A unit is `header_bytes` of scales, then the ints of its blocks.
template <DType dtype>
struct PackedUnit;

/// What all of them have in common.
template <uint32_t columns, uint32_t header_bytes, uint32_t bits, uint32_t offset, bool has_min>
struct PackedUnitOf {
  static constexpr uint32_t kColumns = columns;
  static constexpr uint32_t kBlocks = columns / 32;
  static constexpr uint32_t kHeaderBytes = header_bytes;
  static constexpr uint32_t kBits = bits;
  static constexpr uint32_t kBlockBytes = 64 * bits;  // 32 columns x 16 rows x bits / 8
  static constexpr uint32_t kBytes = header_bytes + columns / 32 * kBlockBytes;
  static constexpr uint32_t kOffset = offset;  ///< Subtracted from the unsigned integers.
  static constexpr bool kHasMin = has_min;
};

template <>
struct PackedUnit<DType::kQ8_0> : PackedUnitOf<64, 64, 8, 128, false> {};
template <>
struct PackedUnit<DType::kQ5_0> : PackedUnitOf<64, 64, 5, 16, false> {};
template <>
struct PackedUnit<DType::kQ4_0> : PackedUnitOf<64, 64, 4, 8, false> {};
template <>
struct PackedUnit<DType::kQ5_1> : PackedUnitOf<32, 64, 5, 0, true> {};
template <>
struct PackedUnit<DType::kQ4_1> : PackedUnitOf<32, 64, 4, 0, true> {};
template <>
struct PackedUnit<DType::kQ5_K> : PackedUnitOf<256, 320, 5, 0, true> {};
template <>
struct PackedUnit<DType::kQ4_K> : PackedUnitOf<256, 320, 4, 0, true> {};
template <>
struct PackedUnit<DType::kQ6_K> : PackedUnitOf<256, 320, 6, 32, false> {};

}  // namespace kvist::kernels
