#include "platform/settling_map.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace kvist {
namespace {

constexpr uint64_t kPageBytes = 4096;
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // Linux 5.14; newer than the headers of some systems.
#endif

constexpr uint64_t RoundUp(uint64_t bytes, uint64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

}  // namespace

SettlingMap::SettlingMap(SettlingMap&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      copies_(std::exchange(other.copies_, nullptr)),
      reserved_(std::exchange(other.reserved_, nullptr)),
      reserved_bytes_(std::exchange(other.reserved_bytes_, 0)) {}

SettlingMap& SettlingMap::operator=(SettlingMap&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(copies_, other.copies_);
  std::swap(reserved_, other.reserved_);
  std::swap(reserved_bytes_, other.reserved_bytes_);
  return *this;
}

SettlingMap::~SettlingMap() {
  if (reserved_ != nullptr) ::munmap(reserved_, reserved_bytes_);
}

absl::StatusOr<SettlingMap> SettlingMap::Map(const MappedFile& file, uint64_t offset, uint64_t bytes) {
  KVIST_CHECK(bytes > 0 && offset % kPageBytes == 0 && offset + bytes <= file.bytes().size());
  SettlingMap map;
  const uint64_t room = RoundUp(bytes, kSettlePieceBytes);
  map.reserved_bytes_ = 2 * room + kSettlePieceBytes;
  void* reserved = ::mmap(nullptr, map.reserved_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return absl::ResourceExhaustedError(Cat("cannot map ", map.reserved_bytes_, " bytes"));
  map.reserved_ = static_cast<std::byte*>(reserved);
  const uint64_t past = reinterpret_cast<uintptr_t>(reserved) % kSettlePieceBytes;
  map.data_ = map.reserved_ + (past == 0 ? 0 : kSettlePieceBytes - past);
  map.copies_ = map.data_ + room;
  map.size_ = bytes;
  if (::mmap(map.data_, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, file.fd(), static_cast<off_t>(offset)) ==
          MAP_FAILED ||
      ::mprotect(map.copies_, room, PROT_READ | PROT_WRITE) != 0) {
    return absl::UnavailableError(Cat("cannot map ", bytes, " bytes of a file"));
  }
  ::madvise(map.copies_, room, MADV_HUGEPAGE);  // A wish; small pages work as well.
  return map;
}

absl::Status SettlingMap::Populate(uint64_t offset, uint64_t bytes) const {
  KVIST_CHECK(offset % kPageBytes == 0 && offset + bytes <= size_);
  while (::madvise(data_ + offset, RoundUp(bytes, kPageBytes), MADV_POPULATE_READ) != 0) {
    if (errno == EINVAL) return absl::OkStatus();  // An older kernel: pages come when they are touched.
    if (errno != EINTR && errno != EAGAIN) return absl::DataLossError(Cat("cannot read at byte ", offset));
  }
  return absl::OkStatus();
}

uint64_t SettlingMap::PieceBytes(uint32_t piece) const {
  const uint64_t begin = piece * kSettlePieceBytes;
  return std::min(kSettlePieceBytes, RoundUp(size_ - begin, kPageBytes));
}

const std::byte* SettlingMap::CopyPiece(uint32_t piece) {
  KVIST_CHECK(piece < pieces());
  const uint64_t begin = piece * kSettlePieceBytes;
  std::memcpy(copies_ + begin, data_ + begin, std::min(kSettlePieceBytes, size_ - begin));
  return copies_ + begin;
}

absl::Status SettlingMap::MovePiece(uint32_t piece) {
  const uint64_t begin = piece * kSettlePieceBytes, bytes = PieceBytes(piece);
  // One step for everybody else: a reader that comes in between waits in its page fault.
  if (::mremap(copies_ + begin, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, data_ + begin) == MAP_FAILED) {
    return absl::ResourceExhaustedError(Cat("cannot move a piece of a map: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace kvist
