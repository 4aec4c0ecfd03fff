#pragma once

/// @file
/// Integers that the 4-bit codes of the table types mean. Plain data: also compiled with wider instruction sets, so no
/// functions here.

#include <cstdint>

namespace kvist {

/// IQ4_NL and IQ4_XS: levels that lie closer together near zero, where weights are frequent.
inline constexpr int16_t kIQ4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/// MXFP4: twice the numbers of E2M1, a float of one sign, two exponent and one mantissa bits (OCP Microscaling Formats
/// MX Specification 1.0). Code 8, minus zero there, is plain zero here.
inline constexpr int16_t kMXFP4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace kvist
