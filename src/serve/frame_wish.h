#pragma once

/// @file
/// What a request says of the periodic frames of its session. Plain data. Format: docs/serving.md, "Frames".

#include <cstdint>

namespace kvist::serve {

struct FrameWish {
  int64_t period_ns = 0;       ///< The answer is due before the next frame; 0 = no frame.
  uint32_t window_tokens = 0;  ///< Of a session's text, the last ones that stay in view; 0 = all do.
  uint32_t sink_tokens = 4;    ///< And the first ones.
  uint32_t known_tokens = 0;   ///< Of the prompt, that the session read before. Found when the prompt is prepared.

  bool any() const { return period_ns > 0 || window_tokens > 0; }
};

}  // namespace kvist::serve
