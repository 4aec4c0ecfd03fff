#pragma once

/// @file
/// Files that only their owner may read. Any thread.

#include <string>

#include "absl/status/status.h"

namespace kvist {

/// Makes an empty file of mode 0600 where there is none; what is there stays, with its mode. Errors: those of the file
/// system, with the path.
absl::Status MakePrivateFile(const std::string& path);

}  // namespace kvist
