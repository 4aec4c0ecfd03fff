#pragma once

/// @file
/// Numbers of the packed layout that packed.h describes, for code that walks it. Plain data: also compiled with wider
/// instruction sets, so no functions here.

#include <cstdint>

#include "tensor/code_values.h"
#include "tensor/dtype.h"

namespace kvist::kernels {

inline constexpr uint32_t kGroupVectorBytes = 64;  ///< One int vector: 16 rows x 4 columns.
inline constexpr uint32_t kBlockVectors = 8;       ///< Int vectors of a block of 32 columns.

/// What the header of a unit holds; packed.h says how it lies there.
enum class UnitHeader : uint8_t {
  kD,             ///< d for each block.
  kDM,            ///< d and m.
  kScaleMin,      ///< d, dmin; scale and min for each block.
  kSignedScales,  ///< d; two sub-scales of 8 bits for each block.
  kSixBitPairs,   ///< d; two sub-scales of 6 bits for each block.
  kNibblePairs,   ///< d, dmin; two sub-scales and two mins of 4 bits for each block.
  kSixBitScales,  ///< d; a scale of 6 bits for each block.
  kExponents,     ///< The exponent of d for each block.
};

/// What a stored integer means.
enum class UnitCodes : uint8_t {
  kNone,   ///< Itself less the offset.
  kIQ4,    ///< kIQ4Values.
  kMXFP4,  ///< kMXFP4Values.
};

/// Geometry and arithmetic of a type; kernels ask for these and never for a type by name.
struct UnitTraits {
  uint32_t columns;
  uint32_t bits;  ///< Of a stored integer.
  UnitCodes codes = UnitCodes::kNone;
  uint32_t offset = 0;  ///< Added to what stored integers mean to make them unsigned: u.
  uint32_t max = 0;     ///< Largest u; 0 = the largest that the bits can hold.
  UnitHeader header;
  uint32_t header_bytes = 64;
  uint32_t mins = 0;           ///< Minimums added for a block: one, or one for each 16 columns.
  uint32_t sub_scale_max = 0;  ///< Largest magnitude of the integers that scale 16 columns; 0 = there are none.
};

/// Geometry of one quantised type. A unit is `header_bytes` of scales, then the ints of its blocks.
template <DType dtype>
struct PackedUnit;

/// What all of them have in common.
template <UnitTraits traits>
struct PackedUnitOf {
  static constexpr uint32_t kColumns = traits.columns;
  static constexpr uint32_t kBlocks = traits.columns / 32;
  static constexpr UnitHeader kHeader = traits.header;
  static constexpr uint32_t kHeaderBytes = traits.header_bytes;
  static constexpr uint32_t kBits = traits.bits;
  static constexpr uint32_t kBlockBytes = 64 * traits.bits;  // 32 columns x 16 rows x bits / 8
  static constexpr uint32_t kBytes = traits.header_bytes + kBlocks * kBlockBytes;
  static constexpr UnitCodes kCodes = traits.codes;
  static constexpr const int16_t* kValues = traits.codes == UnitCodes::kNone  ? nullptr
                                            : traits.codes == UnitCodes::kIQ4 ? kIQ4Values
                                                                              : kMXFP4Values;  ///< [16], or null.
  static constexpr uint32_t kOffset = traits.offset;
  static constexpr uint32_t kMax = traits.max > 0 ? traits.max : (1u << traits.bits) - 1;
  static constexpr uint32_t kMins = traits.mins;
  static constexpr bool kHasSubScales = traits.sub_scale_max > 0;
  static constexpr uint32_t kSubScaleMax = traits.sub_scale_max;
  /// Largest magnitude of u - offset times its sub-scale.
  static constexpr uint32_t kScaledMax = kSubScaleMax * (kMax - kOffset > kOffset ? kMax - kOffset : kOffset);
};

template <>
struct PackedUnit<DType::kQ8_0>
    : PackedUnitOf<UnitTraits{.columns = 64, .bits = 8, .offset = 128, .header = UnitHeader::kD}> {};
template <>
struct PackedUnit<DType::kQ5_0>
    : PackedUnitOf<UnitTraits{.columns = 64, .bits = 5, .offset = 16, .header = UnitHeader::kD}> {};
template <>
struct PackedUnit<DType::kQ4_0>
    : PackedUnitOf<UnitTraits{.columns = 64, .bits = 4, .offset = 8, .header = UnitHeader::kD}> {};
template <>
struct PackedUnit<DType::kQ5_1>
    : PackedUnitOf<UnitTraits{.columns = 32, .bits = 5, .header = UnitHeader::kDM, .mins = 1}> {};
template <>
struct PackedUnit<DType::kQ4_1>
    : PackedUnitOf<UnitTraits{.columns = 32, .bits = 4, .header = UnitHeader::kDM, .mins = 1}> {};
template <>
struct PackedUnit<DType::kQ5_K>
    : PackedUnitOf<UnitTraits{
          .columns = 256, .bits = 5, .header = UnitHeader::kScaleMin, .header_bytes = 320, .mins = 1}> {};
template <>
struct PackedUnit<DType::kQ4_K>
    : PackedUnitOf<UnitTraits{
          .columns = 256, .bits = 4, .header = UnitHeader::kScaleMin, .header_bytes = 320, .mins = 1}> {};
template <>
struct PackedUnit<DType::kQ6_K> : PackedUnitOf<UnitTraits{.columns = 256,
                                                          .bits = 6,
                                                          .offset = 32,
                                                          .header = UnitHeader::kSignedScales,
                                                          .header_bytes = 320,
                                                          .sub_scale_max = 128}> {};
template <>
struct PackedUnit<DType::kQ3_K> : PackedUnitOf<UnitTraits{.columns = 256,
                                                          .bits = 3,
                                                          .offset = 4,
                                                          .header = UnitHeader::kSixBitPairs,
                                                          .header_bytes = 256,
                                                          .sub_scale_max = 32}> {};
template <>
struct PackedUnit<DType::kQ2_K> : PackedUnitOf<UnitTraits{.columns = 256,
                                                          .bits = 2,
                                                          .header = UnitHeader::kNibblePairs,
                                                          .header_bytes = 320,
                                                          .mins = 2,
                                                          .sub_scale_max = 15}> {};
template <>
struct PackedUnit<DType::kIQ4_NL>
    : PackedUnitOf<UnitTraits{
          .columns = 64, .bits = 4, .codes = UnitCodes::kIQ4, .offset = 128, .max = 241, .header = UnitHeader::kD}> {};
template <>
struct PackedUnit<DType::kIQ4_XS> : PackedUnitOf<UnitTraits{.columns = 256,
                                                            .bits = 4,
                                                            .codes = UnitCodes::kIQ4,
                                                            .offset = 128,
                                                            .max = 241,
                                                            .header = UnitHeader::kSixBitScales,
                                                            .header_bytes = 128}> {};
template <>
struct PackedUnit<DType::kMXFP4> : PackedUnitOf<UnitTraits{.columns = 128,
                                                           .bits = 4,
                                                           .codes = UnitCodes::kMXFP4,
                                                           .offset = 12,
                                                           .max = 24,
                                                           .header = UnitHeader::kExponents}> {};

}  // namespace kvist::kernels
