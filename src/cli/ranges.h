#pragma once

/// @file
/// Numbers that flags take. A value outside is refused with the flag, the value and the range: "--port: 99999 is not a
/// whole number from 0 to 65535". CLI11's own checks let NaN through and leave the range out. Pure; one thread.

#include <cstdint>
#include <limits>
#include <string_view>

#include <CLI/CLI.hpp>

namespace kvist::cli {

/// Decimal digits in [min, max]. For Option::transform: it takes off leading zeros, which CLI11 would read as octal.
CLI::Validator WholeNumber(uint64_t min, uint64_t max);

/// A finite number in [min, max]. For Option::check.
CLI::Validator Number(double min, double max);

/// An amount of memory in [min, max] bytes, such as 4GiB. For Option::check on a string, which ParseByteSize reads.
CLI::Validator ByteSize(uint64_t min = 0, uint64_t max = INT64_MAX);
/// What the type of a flag that takes a ByteSize is called.
inline constexpr std::string_view kByteSizeName = "SIZE";

/// For counts that only their type bounds.
inline constexpr uint64_t kCountMax = std::numeric_limits<uint32_t>::max();

}  // namespace kvist::cli
