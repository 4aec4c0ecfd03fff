#include "kv/frame_arena.h"

#include <algorithm>

#include "base/status.h"

namespace kvist::kv {

absl::StatusOr<FrameArena> FrameArena::Create(uint32_t frames_count, uint64_t frame_bytes) {
  FrameArena arena;
  KVIST_ASSIGN_OR_RETURN(arena.memory_, AnonymousMemory::Map(frames_count * frame_bytes));
  arena.frame_bytes_ = frame_bytes;
  arena.frames_count_ = frames_count;
  return arena;
}

void FrameArena::Populate(const std::function<bool()>& go_on) const {
  constexpr size_t kPieceBytes = size_t{16} << 20;
  for (size_t begin = 0; begin < memory_.size() && go_on(); begin += kPieceBytes) {
    memory_.Populate(begin, std::min(kPieceBytes, memory_.size() - begin));
  }
}

}  // namespace kvist::kv
