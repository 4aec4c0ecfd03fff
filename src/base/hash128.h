#pragma once

/// @file
/// XXH3 checksums of 128 bits, for files of ours: they find damage, not malice. Pure.

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvist {

struct Hash128 {
  uint64_t low = 0, high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

Hash128 HashOf(std::span<const std::byte> bytes);

}  // namespace kvist
