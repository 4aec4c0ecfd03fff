#pragma once

/// @file
/// Reads a small file whole: settings, price lists, keys; writes one: reports, scenarios. Any thread. Non-goals: large
/// files (mapped_file.h).

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace kvist {

/// The bytes of a file or pipe. Errors: NotFound, PermissionDenied and others of the file system; InvalidArgument for a
/// folder and for more than `bytes_max`. With the path.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t bytes_max);

/// Makes or replaces the file. What must be whole or not there at all is for PartialFile. Errors: Unavailable, with the
/// path.
absl::Status WriteTextFile(const std::string& path, std::string_view text);

}  // namespace kvist
