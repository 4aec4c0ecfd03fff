#pragma once

/// @file
/// What the system knows about this process. Any thread.

#include <cstdint>

namespace kvist {

/// Since the system started this process, in steps of 10 ms; 0 when unknown.
double SecondsSinceProcessStart();

/// Memory that this process has now, by what stands behind it.
struct ResidentBytes {
  uint64_t anonymous = 0;  ///< Its own.
  uint64_t file = 0;       ///< Mapped files; shared with the page cache.
};
/// Zeros when unknown.
ResidentBytes ResidentMemory();

}  // namespace kvist
