#pragma once

/// @file
/// Speed of a model on its executor, without a server: prompt processing and decoding, with repetitions. Drives
/// step::Executor directly. Non-goals: bandwidth and peak of the machine, scheduling.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "kv/kv_memory.h"
#include "step/executor.h"

namespace kvist::lab {

struct SpeedOptions {
  uint32_t prompt_tokens = 512;  ///< 0 = no prompt measurement.
  uint32_t decode_tokens = 128;  ///< Per sequence; 0 = no decode measurement.
  uint32_t batch = 1;            ///< Sequences that decode side by side.
  uint32_t context_tokens = 0;   ///< Tokens before the first decoded one.
  uint32_t repetitions = 3;      ///< After one that is not counted.
};

struct Speed {
  std::string name;                  ///< "pp512", "tg128", "tg128@b8", "tg128@c4096".
  std::vector<double> tokens_per_s;  ///< Sorted; one per repetition.
  double median() const { return tokens_per_s[tokens_per_s.size() / 2]; }
};

/// REQUIRES: no step in flight, memory without sequences. Errors: InvalidArgument when the tokens do not fit.
absl::StatusOr<std::vector<Speed>> MeasureSpeed(step::Executor& executor, kv::KvMemory& memory, const Clock& clock,
                                                const SpeedOptions& options);

}  // namespace kvist::lab
