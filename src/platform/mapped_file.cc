#include "platform/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/status.h"

namespace kvist {

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a pipe by mistake must be an error below, not a wait for its writer.
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, path);
  struct stat info {};
  MappedFile file;
  absl::Status status;
  if (::fstat(fd, &info) != 0) {
    status = absl::ErrnoToStatus(errno, path);
  } else if (!S_ISREG(info.st_mode)) {
    status = absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  } else if (info.st_size > 0) {
    size_t length = static_cast<size_t>(info.st_size);
    void* data = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
      status = absl::UnavailableError(absl::StrCat(path, ": cannot map ", length, " bytes"));
    } else {
      file.bytes_ = {static_cast<const std::byte*>(data), length};
    }
  }
  ::close(fd);
  if (!status.ok()) return status;
  return file;
}

}  // namespace kvist
