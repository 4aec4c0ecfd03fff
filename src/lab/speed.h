#pragma once

/// @file
/// Speed of a model on its executor, without a server: prompt processing and decoding, alone or side by side, from
/// nothing or after a long context. Drives step::Executor directly. Non-goals: limits of the machine (machine.h),
/// scheduling.
///
/// A context ("depth") is filled chunk by chunk where each chunk attends to itself only: the keys and values are as
/// many and as real as after a prompt of that length, and the time grows linearly. What is measured after it attends to
/// all. Sequences may share a first part of their contexts: the same blocks are in the views of all.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "kv/kv_memory.h"
#include "step/executor.h"

namespace kvist::lab {

struct SpeedOptions {
  std::vector<uint32_t> prompts{512};  ///< Prompt lengths.
  uint32_t decode_tokens = 128;        ///< Per sequence; 0 = no decoding.
  std::vector<uint32_t> batches{1};    ///< Sequences that decode side by side; each at least 1.
  std::vector<uint32_t> depths{0};     ///< Tokens in KV memory before the measured ones, of each sequence.
  uint32_t shared_depth = 0;           ///< Tokens before those, the same ones for all sequences.
  uint32_t repetitions = 5;            ///< After one round that is not counted; all measurements take turns in a round.
  /// Asked before every step; false ends it (Cancelled). `round` 0 is the one that is not counted.
  std::function<bool(std::string_view name, uint32_t round)> progress;
};

enum class SpeedKind : uint8_t { kPrompt, kDecode };

struct Speed {
  std::string name;  ///< "pp512", "tg128", "tg128@b8", "tg128@b8@d4096", "tg128@b8@s4096" (shared).
  SpeedKind kind = SpeedKind::kPrompt;
  uint32_t tokens = 0;  ///< Per sequence.
  uint32_t batch = 1;
  uint32_t depth = 0, shared_depth = 0;
  std::vector<double> seconds;  ///< Sorted; one per repetition. A prompt's include its first sampled token.
  /// Sorted; one per repetition: of a step's time, what passes outside of the executor's own measure of it: handing the
  /// plan over, waking threads, taking the result.
  std::vector<double> host_seconds;

  /// Linear between neighbours. @param fraction  0.5 = median, 0.9 = slower than nine of ten.
  double SecondsAt(double fraction) const;
  double TokensPerS(double fraction) const { return double{1} * tokens * batch / SecondsAt(fraction); }
  /// (slowest - fastest) / median.
  double Spread() const { return (seconds.back() - seconds.front()) / SecondsAt(0.5); }
};

/// Longest view that the measurements need, tokens.
uint32_t TokensNeeded(const SpeedOptions& options);

/// Seconds that a prompt takes up to its first sampled token, once, nothing before it. As MeasureSpeed.
absl::StatusOr<double> TimePrompt(step::Executor& executor, kv::KvMemory& memory, const Clock& clock, uint32_t tokens);

/// Takes over the executor's wake function.
/// REQUIRES: no step in flight, memory without sequences. Errors: InvalidArgument when the tokens do not fit.
absl::StatusOr<std::vector<Speed>> MeasureSpeed(step::Executor& executor, kv::KvMemory& memory, const Clock& clock,
                                                const SpeedOptions& options);

}  // namespace kvist::lab
