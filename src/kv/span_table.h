#pragma once

/// @file
/// Logical to physical: which frame holds which block of which span. The engine side writes it, executors read it when
/// a plan is submitted. A span lives as long as somebody holds it: the sequence that writes it, tree nodes that name
/// its blocks. Threads: engine thread only. Non-goals: references to frames, contents.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/units.h"

namespace kvist::kv {

/// A block without a frame.
inline constexpr FrameId kNoFrame{UINT32_MAX};

class SpanTable {
 public:
  /// A new, empty span, held once. Ids of closed spans are used again. @param writer  whose sequence fills it
  SpanId Open(RequestId writer = {});
  void Hold(SpanId span);
  /// The last one closes the span; its frames have been released before.
  void Release(SpanId span);

  /// Adds the frame of the next block.
  void Append(SpanId span, FrameId frame);
  /// Points a block at another frame with the same contents, or at none. Views and plans stay as they are.
  void Replace(SpanId span, uint32_t block, FrameId frame);

  /// [num_blocks] kNoFrame where the block has none. REQUIRES: open.
  const std::vector<FrameId>& Frames(SpanId span) const;
  /// Who fills it, and when the last of it was written: kTimeNever = it is still being written.
  struct Origin {
    RequestId writer{};
    TimeNs written_at = kTimeNever;
  };
  const Origin& OriginOf(SpanId span) const;
  void SetWritten(SpanId span, TimeNs at);
  uint32_t open_count() const { return open_count_; }

 private:
  struct Entry {
    uint32_t holders = 0;
    Origin origin;
    std::vector<FrameId> frames;
  };
  std::vector<Entry> spans_;
  std::vector<uint32_t> reusable_;
  uint32_t open_count_ = 0;
};

}  // namespace kvist::kv
