#pragma once

/// @file
/// What a store gives up when it is full: facts in, rankings out. Segments go as a whole; of the blocks in the one that
/// goes some may be carried on into a new one. Time is the store's count of uses. Pure.

#include <cstdint>
#include <string_view>

namespace kvist::kv {

/// A stored block.
struct StoredBlockUse {
  uint64_t last_use = 0, now = 0;  ///< In uses of the store.
  uint32_t hits = 0;               ///< Since it was written or carried on.
  uint32_t tokens = 0, payload_bytes = 0;
  uint8_t generation = 0;
};

/// A sealed segment.
struct SegmentUse {
  uint64_t file_bytes = 0, live_bytes = 0;
  uint64_t last_use = 0;  ///< Of its blocks: the latest; 0 = none is live.
  double value = 0;       ///< Of its blocks: the sum.
};

class EvictionOrder {
 public:
  virtual ~EvictionOrder() = default;
  virtual std::string_view name() const = 0;
  /// Blocks of more than 0 are carried on, greatest first, as far as the store's bound on writing again allows.
  virtual double BlockValue(const StoredBlockUse& block) const = 0;
  /// The segment of the least goes first.
  virtual double SegmentValue(const SegmentUse& segment) const = 0;
};

/// The segment that was used longest ago; blocks that were used since they were written are carried on.
class LruOrder final : public EvictionOrder {
 public:
  std::string_view name() const override { return "lru"; }
  double BlockValue(const StoredBlockUse& block) const override {
    return block.hits == 0 ? 0 : static_cast<double>(block.last_use);
  }
  double SegmentValue(const SegmentUse& segment) const override { return static_cast<double>(segment.last_use); }
};

/// The segment whose bytes are worth least: tokens saved by use since written, aged by the time since the last one.
class ValueOrder final : public EvictionOrder {
 public:
  std::string_view name() const override { return "value"; }
  double BlockValue(const StoredBlockUse& block) const override {
    const auto age = static_cast<double>(block.now - block.last_use + 1);
    return block.hits == 0 ? 0 : block.hits * block.tokens / (age * block.payload_bytes);
  }
  double SegmentValue(const SegmentUse& segment) const override {
    // Of two without value the one that was used longest ago.
    return segment.value * static_cast<double>(segment.live_bytes) / static_cast<double>(segment.file_bytes + 1) +
           static_cast<double>(segment.last_use) * 1e-18;
  }
};

}  // namespace kvist::kv
