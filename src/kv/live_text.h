#pragma once

/// @file
/// What of a text may still be attended to after operations on its cache, and by how much the stored rotary positions
/// are off. The text itself never changes; tokens are named by their index in it. Pure. Threads: none shared.
/// Source: A6 (AKV): drop removes tokens from the view, repos closes the gap that they leave in the positions.

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"

namespace kvist::kv {

/// Tokens [begin, end) of a text, or of its view.
struct TokenRange {
  uint32_t begin = 0, end = 0;
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

/// Removes tokens [begin, end) from the view once `at` tokens are computed.
struct CacheOp {
  uint32_t at = 0;              ///< Tokens of the text that were computed with the dropped ones in view.
  uint32_t begin = 0, end = 0;  ///< begin < end <= at.
  bool reposition = true;       ///< Later tokens move up to close the gap; else they keep their positions.
  friend auto operator<=>(const CacheOp&, const CacheOp&) = default;
};

/// "" when the operations are in order of `at` and each is well-formed, else what is wrong, naming the operation.
std::string FindFault(std::span<const CacheOp> ops);

/// Consecutive tokens of the text that are in the view.
struct LiveRange {
  uint32_t begin = 0, end = 0;
  int32_t shift = 0;  ///< To be added to the stored positions of its keys.
  friend bool operator==(const LiveRange&, const LiveRange&) = default;
};

class LiveText {
 public:
  /// The next `tokens` are computed, with the view as it is.
  void Advance(uint32_t tokens);
  /// REQUIRES: op.at == tokens(), op is well-formed. Tokens that are no longer in the view stay so.
  void Apply(const CacheOp& op);

  uint32_t tokens() const { return tokens_; }            ///< Computed, dropped ones included.
  uint32_t live_tokens() const { return live_tokens_; }  ///< In the view.
  uint32_t next_position() const { return next_position_; }
  std::span<const LiveRange> ranges() const { return ranges_; }  ///< In order, not touching unless shifts differ.
  /// Any token of [begin, end) in the view?
  bool AnyLive(uint32_t begin, uint32_t end) const;
  /// Where the tokens of `range` that are in the view lie in it. Tokens of the text that come next count as in view.
  TokenRange InView(const TokenRange& range) const { return {LiveBefore(range.begin), LiveBefore(range.end)}; }
  /// Blocks of the text with any token in the view.
  uint32_t LiveBlocks() const;

  /// The view after `tokens` tokens and those of `ops` that are due by then.
  static LiveText After(uint32_t tokens, std::span<const CacheOp> ops);
  /// The most that the view takes at any time until `tokens` are computed.
  struct Need {
    uint32_t tokens = 0, blocks = 0;
  };
  static Need Peak(uint32_t tokens, std::span<const CacheOp> ops);

 private:
  uint32_t LiveBefore(uint32_t token) const;

  std::vector<LiveRange> ranges_;
  uint32_t tokens_ = 0, live_tokens_ = 0, next_position_ = 0;
};

}  // namespace kvist::kv
