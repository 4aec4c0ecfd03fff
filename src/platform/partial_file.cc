#include "platform/partial_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace kvist {
namespace {

/// The error of the last system call; a full disk is told apart from other trouble.
absl::Status LastError(const std::string& path) {
  const int error = errno;
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return absl::ResourceExhaustedError(Cat(path, ": ", std::generic_category().message(error)));
  }
  return absl::ErrnoToStatus(error, path);
}

/// Whether `path` still names the open file: whoever held the lock before may have renamed or removed it.
bool StillNamed(int fd, const std::string& path, uint64_t& size) {
  struct stat open_file {
  }, named_file{};
  if (::fstat(fd, &open_file) != 0 || ::stat(path.c_str(), &named_file) != 0) return false;
  size = static_cast<uint64_t>(open_file.st_size);
  return open_file.st_dev == named_file.st_dev && open_file.st_ino == named_file.st_ino;
}

absl::Status Lock(int fd, const std::string& path, const std::function<bool()>& wait) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return LastError(path);
    if (!wait()) return absl::CancelledError(Cat(path, ": another process is writing it"));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return absl::OkStatus();
}

}  // namespace

PartialFile::PartialFile(std::string target, int fd, uint64_t size)
    : target_(std::move(target)), path_(target_ + ".part"), fd_(fd), size_(size) {}

PartialFile::PartialFile(PartialFile&& other) noexcept
    : target_(std::move(other.target_)),
      path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      map_(std::exchange(other.map_, {})) {}

PartialFile& PartialFile::operator=(PartialFile&& other) noexcept {
  std::swap(target_, other.target_);
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(map_, other.map_);
  return *this;
}

PartialFile::~PartialFile() {
  if (fd_ < 0) return;
  if (size_ == 0) ::unlink(path_.c_str());
  Close();
}

void PartialFile::Close() {
  if (!map_.empty()) ::munmap(map_.data(), map_.size());
  map_ = {};
  ::close(std::exchange(fd_, -1));
}

absl::StatusOr<PartialFile> PartialFile::Open(const std::string& target, const std::function<bool()>& wait,
                                              FileAccess access) {
  const std::string path = target + ".part";
  const mode_t mode = access == FileAccess::kPrivate ? 0600 : 0666;
  while (true) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0) return LastError(path);
    if (absl::Status status = Lock(fd, path, wait); !status.ok()) {
      ::close(fd);
      return status;
    }
    uint64_t size = 0;
    if (StillNamed(fd, path, size)) return PartialFile(target, fd, size);
    ::close(fd);
  }
}

absl::Status PartialFile::Truncate(uint64_t size) {
  KVIST_CHECK(fd_ >= 0 && size <= size_);
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) return LastError(path_);
  size_ = size;
  return absl::OkStatus();
}

absl::Status PartialFile::Append(std::span<const char> bytes) {
  KVIST_CHECK(fd_ >= 0);
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return LastError(path_);
    size_ += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::span<std::byte>> PartialFile::AllocateAndMap(uint64_t bytes) {
  KVIST_CHECK(fd_ >= 0 && size_ == 0 && bytes > 0);
  // A write to a page of the map that finds the disk full would be a SIGBUS.
  if (const int error = ::posix_fallocate(fd_, 0, static_cast<off_t>(bytes)); error != 0) {
    errno = error;
    const absl::Status status = LastError(path_);
    (void)::ftruncate(fd_, 0);
    return status;
  }
  size_ = bytes;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (data == MAP_FAILED) return LastError(path_);
  map_ = {static_cast<std::byte*>(data), bytes};
  return map_;
}

void PartialFile::BeginWriteback() {
  KVIST_CHECK(fd_ >= 0);
  (void)::sync_file_range(fd_, 0, 0, SYNC_FILE_RANGE_WRITE);
}

absl::Status PartialFile::Publish() {
  KVIST_CHECK(fd_ >= 0);
  if (::fsync(fd_) != 0) return LastError(path_);
  if (::rename(path_.c_str(), target_.c_str()) != 0) return LastError(target_);
  Close();
  // The new name must survive a power cut too; a file system that cannot sync a folder is no reason to fail.
  const std::string folder = std::filesystem::path(target_).parent_path().string();
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    (void)::fsync(fd);
    ::close(fd);
  }
  return absl::OkStatus();
}

void PartialFile::Discard() {
  KVIST_CHECK(fd_ >= 0);
  ::unlink(path_.c_str());
  Close();
}

uint64_t FreeDiskBytes(const std::string& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return UINT64_MAX;
  return uint64_t{info.f_bavail} * info.f_frsize;
}

}  // namespace kvist
