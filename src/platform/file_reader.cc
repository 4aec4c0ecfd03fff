#include "platform/file_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace kvist {
absl::StatusOr<std::byte*> ReadBuffer::Reserve(size_t bytes) {
  if (memory_.size() < bytes) {
    KVIST_ASSIGN_OR_RETURN(memory_, AnonymousMemory::Map(bytes));
  }
  return memory_.data();
}

absl::StatusOr<FileReader> FileReader::Open(const MappedFile& file, std::string label, Mode mode) {
  // An open file of its own: whether reads are direct is a property of that, not of the descriptor.
  const std::string path = Cat("/proc/self/fd/", file.fd());
  int fd = mode == Mode::kDirect ? ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT) : -1;
  if (fd < 0) fd = ::fcntl(file.fd(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, label);
  return FileReader(fd, std::move(label));
}

FileReader::FileReader(FileReader&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), label_(std::move(other.label_)) {}

FileReader& FileReader::operator=(FileReader&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(label_, other.label_);
  return *this;
}

FileReader::~FileReader() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status FileReader::ReadAligned(uint64_t offset, std::span<std::byte> out, uint64_t needed) const {
  KVIST_CHECK(needed <= out.size());
  uint64_t done = 0;
  while (done < needed) {
    const ssize_t got = ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    const int error = errno;
    if (got > 0) {
      done += static_cast<uint64_t>(got);
    } else if (got == 0) {
      return absl::DataLossError(Cat(label_, ": ends at byte ", offset + done, ", ", needed - done, " are missing"));
    } else if (error == EINVAL && StopDirect(fd_)) {
      continue;  // This file system wants other alignments, or the read before ended inside a block.
    } else if (error != EINTR) {
      return absl::ErrnoToStatus(error, Cat(label_, ": reading at byte ", offset + done));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::span<const std::byte>> FileReader::Read(uint64_t offset, uint64_t bytes, ReadBuffer& buffer) const {
  const uint64_t skip = offset % kDirectAlignment;
  const uint64_t room = (skip + bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
  KVIST_ASSIGN_OR_RETURN(std::byte* const data, buffer.Reserve(room));
  KVIST_RETURN_IF_ERROR(ReadAligned(offset - skip, {data, room}, skip + bytes));
  return std::span<const std::byte>(data + skip, bytes);
}

}  // namespace kvist
