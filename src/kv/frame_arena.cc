#include "kv/frame_arena.h"

#include "base/status.h"

namespace kvist::kv {

absl::StatusOr<FrameArena> FrameArena::Create(uint32_t frames_count, uint64_t frame_bytes) {
  FrameArena arena;
  KVIST_ASSIGN_OR_RETURN(arena.memory_, AnonymousMemory::Map(frames_count * frame_bytes));
  arena.frame_bytes_ = frame_bytes;
  arena.frames_count_ = frames_count;
  return arena;
}

}  // namespace kvist::kv
