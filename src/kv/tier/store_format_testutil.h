#pragma once

/// @file
/// Pages of a store with right checksums, for tests and fuzzers: what somebody would write who knows how. Pure.

#include <cstddef>
#include <span>

namespace kvist::kv {

/// Sets the checksum at a page's end. REQUIRES: one page.
void SealPage(std::span<std::byte> page);

}  // namespace kvist::kv
