#pragma once

/// @file
/// How many files and sockets the process may have open. Process-wide.

#include <cstdint>

namespace kvist {

/// Raises the limit to the most that the system allows without privileges. @return the limit now
uint64_t RaiseOpenFilesLimit();

}  // namespace kvist
