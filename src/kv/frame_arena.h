#pragma once

/// @file
/// The bytes of the hot tier: one anonymous mapping, frame by frame, taken from the system page by page as it is used.
/// Threads: any; callers write to different frames.

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "base/units.h"
#include "platform/anonymous_memory.h"

namespace kvist::kv {

class FrameArena {
 public:
  /// Errors: ResourceExhausted when the address space cannot be reserved.
  static absl::StatusOr<FrameArena> Create(uint32_t frames_count, uint64_t frame_bytes);

  /// Takes the system's pages for all frames now, in pieces, until `go_on` says no. Beside others that use them.
  void Populate(const std::function<bool()>& go_on) const;

  std::byte* Frame(FrameId frame) const { return memory_.data() + frame.value * frame_bytes_; }
  uint64_t frame_bytes() const { return frame_bytes_; }
  uint32_t frames_count() const { return frames_count_; }

 private:
  AnonymousMemory memory_;
  uint64_t frame_bytes_ = 0;
  uint32_t frames_count_ = 0;
};

}  // namespace kvist::kv
