#pragma once

/// @file
/// The part of a start that puts an emulated device in the place of this machine. One thread.

#include "runtime/runtime.h"

namespace kvist::runtime {

/// Memory and executor. REQUIRES: the runtime's tokenizer is there.
void UseEmulation(const Emulation& emulation, const RuntimeOptions& options, Runtime& runtime);

}  // namespace kvist::runtime
