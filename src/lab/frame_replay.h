#pragma once

/// @file
/// Sessions of periodic frames in virtual time: each sends some tokens every period and must be answered before the
/// next frame comes; what was said before stays in its context, all of it or a bounded window. Shows how many sessions
/// a machine holds, and what happens when there are too many. Threads: none shared. Source: Metronome (P23).

#include <cstdint>
#include <vector>

#include "lab/virtual_engine.h"
#include "sched/frame_admission.h"

namespace kvist::lab {

struct FrameOptions {
  VirtualEngineOptions world;
  uint32_t frame_tokens = 16, answer_tokens = 8;
  int64_t period_ns = 1'000'000'000;
  /// Tokens of a session that stay in view: the first `sink_tokens`, and the last `window_tokens` and up to half as
  /// many again, so that not every frame drops some. 0 = everything stays.
  uint32_t sink_tokens = 4, window_tokens = 0;
  uint32_t sessions = 0;  ///< Opened one by one; 0 = as many as admission lets in.
  sched::FrameAdmissionOptions admission;
  double open_every_s = 1;  ///< A session asks to be let in.
  double duration_s = 300;
};

/// What a span of time saw.
struct FrameSpan {
  uint32_t sessions = 0;
  uint32_t answered = 0, missed = 0;  ///< Frames; missed ones were answered late, or are still not.
  double answer_ms_mean = 0, answer_ms_max = 0;
};

struct FrameResult {
  uint32_t sessions = 0;  ///< At the end.
  uint64_t answered = 0, missed = 0;
  uint64_t preemptions = 0, computed_tokens = 0;
  std::vector<FrameSpan> spans;  ///< Of ten seconds each.
};

FrameResult ReplayFrames(const Tokenizer& tokenizer, const FrameOptions& options);

}  // namespace kvist::lab
