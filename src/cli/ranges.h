#pragma once

/// @file
/// Numbers that flags take. A value outside is refused with the flag, the value and the range: "--port: 99999 is not a
/// whole number from 0 to 65535". CLI11's own checks let NaN through and leave the range out. Pure; one thread.

#include <cstdint>
#include <limits>

#include <CLI/CLI.hpp>

namespace kvist::cli {

/// Decimal digits in [min, max]. For Option::transform: it takes off leading zeros, which CLI11 would read as octal.
CLI::Validator WholeNumber(uint64_t min, uint64_t max);

/// A finite number in [min, max]. For Option::check.
CLI::Validator Number(double min, double max);

/// For counts that only their type bounds.
inline constexpr uint64_t kCountMax = std::numeric_limits<uint32_t>::max();

}  // namespace kvist::cli
