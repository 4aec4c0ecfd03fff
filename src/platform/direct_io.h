#pragma once

/// @file
/// What reading and writing past the page cache asks for, and the way back when a file system refuses it. Threads: any.

#include <cstdint>

namespace kvist {

/// Offsets, lengths and addresses of direct reads and writes are multiples of this; enough for every disk in use.
inline constexpr uint64_t kDirectAlignment = 4096;

/// A direct read or write was refused (EINVAL): from now on this open file goes through the page cache. @return false
/// when it does already.
bool StopDirect(int fd);

}  // namespace kvist
