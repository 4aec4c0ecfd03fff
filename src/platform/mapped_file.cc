#include "platform/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/status.h"

namespace kvist {
namespace {

constexpr size_t kSamplesMax = 256;  // Of pages; about 0.1 ms.

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), fd_(std::exchange(other.fd_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(fd_, other.fd_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  if (fd_ >= 0) ::close(fd_);
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a pipe by mistake must be an error below, not a wait for its writer.
  MappedFile file;
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd_ < 0) return absl::ErrnoToStatus(errno, path);
  struct stat info {};
  if (::fstat(file.fd_, &info) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  if (info.st_size == 0) return file;
  const size_t length = static_cast<size_t>(info.st_size);
  void* data = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, file.fd_, 0);
  if (data == MAP_FAILED) return absl::UnavailableError(absl::StrCat(path, ": cannot map ", length, " bytes"));
  file.bytes_ = {static_cast<const std::byte*>(data), length};
  return file;
}

absl::StatusOr<FileStamp> MappedFile::Stamp() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return absl::ErrnoToStatus(errno, "fstat");
  return FileStamp{.bytes = static_cast<uint64_t>(info.st_size),
                   .modified_ns = Nanoseconds(info.st_mtim),
                   .changed_ns = Nanoseconds(info.st_ctim)};
}

double MappedFile::CachedShare() const {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE)), pages = (bytes_.size() + page - 1) / page;
  const size_t samples = std::min(pages, kSamplesMax);
  size_t cached = 0;
  for (size_t i = 0; i < samples; ++i) {
    // In the middle of equal parts: the first pages are cached as soon as somebody has looked at the header.
    std::byte* at = const_cast<std::byte*>(bytes_.data()) + (pages * (2 * i + 1) / (2 * samples)) * page;
    unsigned char state = 0;
    if (::mincore(at, 1, &state) != 0) return 1;
    cached += state & 1;
  }
  return samples == 0 ? 1 : static_cast<double>(cached) / static_cast<double>(samples);
}

}  // namespace kvist
