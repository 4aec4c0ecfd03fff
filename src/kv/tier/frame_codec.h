#pragma once

/// @file
/// How a block's bytes are written in cold memory: as they are, or smaller and not quite the same. Pure; threads: any.
/// Non-goals: drives, which keep bytes as they are.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "kv/page_layout.h"

namespace kvist::kv {

class FrameCodec {
 public:
  virtual ~FrameCodec() = default;
  virtual std::string_view name() const = 0;
  /// What is decoded is what was encoded, bit for bit.
  virtual bool lossless() const = 0;
  /// Of a block; a multiple of 64.
  virtual uint64_t encoded_bytes() const = 0;
  /// @param frame  a block as it lies in hot memory @param out  [encoded_bytes()]
  virtual void Encode(const std::byte* frame, std::byte* out) const = 0;
  virtual void Decode(const std::byte* encoded, std::byte* frame) const = 0;
};

/// "none": the bytes of the frame.
std::unique_ptr<FrameCodec> MakeCopyCodec(uint64_t frame_bytes);

/// "int8": about half of f16. One scale s for each page (keys or values of one head and layer, 16 tokens): with m the
/// greatest magnitude in it, s = m / 127 and q = x * (127 / m), rounded to nearest even; so what comes back is off by
/// s / 2 and half a step of f16 at most. What was decoded is encoded to the same integers again: blocks do not wander
/// as they come and go. A page with an infinity or NaN comes back as NaN. Errors: InvalidArgument for pages that are
/// not f16.
absl::StatusOr<std::unique_ptr<FrameCodec>> MakeInt8Codec(const PageLayout& layout);

/// By name. Errors: InvalidArgument: another name; as MakeInt8Codec.
absl::StatusOr<std::unique_ptr<FrameCodec>> MakeFrameCodec(std::string_view name, const PageLayout& layout);

inline constexpr std::string_view kDefaultFrameCodec = "none";

}  // namespace kvist::kv
