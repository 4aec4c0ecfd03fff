#pragma once

/// @file
/// The part of a start that puts an emulated device in the place of this machine. One thread.

#include "runtime/runtime.h"

namespace kvist::runtime {

/// Memory, and a device that makes its tokens up. REQUIRES: the runtime's tokenizer is there.
void UseEmulation(const Emulation& emulation, const RuntimeOptions& options, Runtime& runtime);

/// Blocks of KV memory for the small model, as many as the device has. @param room_bytes  0 = unknown.
/// Errors: InvalidArgument when this machine has no room for its keys and values in so many.
absl::StatusOr<uint32_t> FramesForModel(const Emulation& emulation, uint64_t frame_bytes, uint64_t room_bytes);

/// The device around the runtime's executor, which goes on to compute its tokens.
void UseDeviceAround(const Emulation& emulation, Runtime& runtime);

/// Longest prompt and output together when nothing is said.
uint32_t ContextOf(const Emulation& emulation, const model::ModelSpec& spec);

}  // namespace kvist::runtime
