#pragma once

/// @file
/// Logical to physical: which frame holds which block of which span. The engine side writes it, executors read it when
/// a plan is submitted. Threads: engine thread only. Non-goals: reference counts, contents.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.h"

namespace kvist::kv {

class SpanTable {
 public:
  /// A new, empty span. Ids of closed spans are used again.
  SpanId Open();
  /// REQUIRES: open. Forgets its blocks; the caller has released their frames.
  void Close(SpanId span);

  /// Adds the frame of the next block.
  void Append(SpanId span, FrameId frame);
  /// Points a block at another frame with the same contents. Views and plans stay as they are.
  void Replace(SpanId span, uint32_t block, FrameId frame);

  /// [num_blocks] REQUIRES: open.
  const std::vector<FrameId>& Frames(SpanId span) const;
  uint32_t open_count() const { return open_count_; }

 private:
  struct Entry {
    bool open = false;
    std::vector<FrameId> frames;
  };
  std::vector<Entry> spans_;
  std::vector<uint32_t> reusable_;
  uint32_t open_count_ = 0;
};

}  // namespace kvist::kv
