#pragma once

/// @file
/// Conversions between f32 and the two 16-bit float types. Narrowing rounds to nearest even, overflows to infinity and
/// keeps NaN a (quiet) NaN; widening is exact. Pure functions. Non-goals: arrays (the kernels convert in registers).

#include <immintrin.h>

#include <bit>
#include <cstdint>

namespace kvist {

/// IEEE 754 binary16 to f32. Subnormals are exact.
inline float F16ToF32(uint16_t half) {
  return _cvtsh_ss(half);
}

/// f32 to IEEE 754 binary16.
inline uint16_t F32ToF16(float value) {
  return static_cast<uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/// bfloat16 (the upper half of an f32) to f32.
inline float Bf16ToF32(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

/// f32 to bfloat16.
inline uint16_t F32ToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace kvist
