#pragma once

/// @file
/// Parts of views and copies of blocks by logical address: what KV memory hands to a step's plan. Plain data.

#include <cstdint>

#include "base/units.h"

namespace kvist::kv {

/// Part of a span that a sequence may read, in view order. It may begin and end inside blocks, and a block may appear
/// in several segments. Segments that go on where the one before ended, with the same shift, are as one.
struct Segment {
  SpanId span;
  uint32_t token_begin;  ///< First token inside the span.
  uint32_t tokens_count;
  int32_t position_shift = 0;  ///< Added to the stored rotary position when keys are read; 0 = none.
};

/// Duplicate of one hot block: copy on write of a block whose first tokens are shared, or a move of pages. Bytes of
/// later tokens of the block are copied too and mean nothing. Pages of a split target that have no place are left out.
struct BlockCopy {
  SpanId source;
  uint32_t source_block;
  SpanId target;
  uint32_t target_block;
  friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};

}  // namespace kvist::kv
