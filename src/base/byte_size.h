#pragma once

/// @file
/// Amounts of memory as people write and read them: "4GiB", "512 MiB". Pure; any thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace kvist {

/// A whole or decimal number and a unit: none or B (bytes), K, M, G, T and KiB, MiB, GiB, TiB (powers of 1024), KB, MB,
/// GB, TB (powers of 1000); case and a space between do not matter. Part of a byte is dropped. Errors: InvalidArgument
/// for anything else, negative or beyond 2^63 - 1.
absl::StatusOr<uint64_t> ParseByteSize(std::string_view text);

/// "17 B", "3.2 GiB": at most one decimal, in the largest unit of 1024 that leaves at least 1.
std::string FormatByteSize(uint64_t bytes);

/// Digits in groups of three: "812,000".
std::string FormatCount(uint64_t count);

}  // namespace kvist
