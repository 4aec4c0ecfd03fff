#pragma once

/// @file
/// A range of characters as sequences of ranges of UTF-8 bytes. Pure.

#include <compare>
#include <cstdint>
#include <vector>

#include "grammar/expression.h"

namespace kvist::grammar {

/// Bytes first..last.
struct ByteRange {
  uint8_t first = 0, last = 0;
  friend auto operator<=>(const ByteRange&, const ByteRange&) = default;
};

/// Sequences of 1 to 4 byte ranges; a text is one character of `range` exactly when its bytes lie in the ranges of one
/// of them. REQUIRES: no surrogate in `range`.
std::vector<std::vector<ByteRange>> Utf8Ranges(CharRange range);

}  // namespace kvist::grammar
