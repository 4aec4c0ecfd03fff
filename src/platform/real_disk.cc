#include "platform/real_disk.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "platform/disk_engine.h"
#include "platform/partial_file.h"

namespace kvist {
namespace {

/// Threads of the fallback: enough for a drive to have work, few enough not to be in anybody's way.
constexpr uint32_t kFallbackThreads = 8;

absl::Status ErrorOf(int error, const std::string& place) {
  if (error == ENOSPC || error == EDQUOT) {
    return absl::ResourceExhaustedError(Cat(place, ": ", std::generic_category().message(error)));
  }
  return absl::ErrnoToStatus(error, place);
}

class RealDisk final : public Disk {
 public:
  RealDisk(std::string folder, int folder_fd, const RealDiskOptions& options, std::unique_ptr<DiskEngineBase> engine)
      : folder_(std::move(folder)),
        folder_fd_(folder_fd),
        depth_max_(std::max(options.depth_max, 1u)),
        direct_(options.direct),
        engine_(std::move(engine)) {}

  ~RealDisk() override {
    std::vector<DiskCompletion> ignored;
    while (in_flight() > 0) Poll(ignored, true);  // Somebody's memory is in use.
    engine_.reset();
    for (const OpenFile& file : files_) {
      if (file.fd >= 0) ::close(file.fd);
    }
    if (lock_fd_ >= 0) ::close(lock_fd_);
    ::close(folder_fd_);
  }

  DiskReport report() const override { return {.engine = engine_->name(), .direct = direct_}; }

  absl::StatusOr<DiskFile> Open(const std::string& name, DiskOpen mode) override {
    const int flags = (mode == DiskOpen::kRead    ? O_RDONLY
                       : mode == DiskOpen::kWrite ? O_RDWR
                                                  : O_RDWR | O_CREAT | O_EXCL) |
                      O_CLOEXEC | O_NOFOLLOW;
    int fd = -1;
    if (direct_) {
      fd = ::openat(folder_fd_, name.c_str(), flags | O_DIRECT, 0600);
      if (fd < 0 && errno == EINVAL) {
        direct_ = false;  // tmpfs and some overlays. The file may have been made all the same.
        if (mode == DiskOpen::kCreate) ::unlinkat(folder_fd_, name.c_str(), 0);
      } else if (fd < 0) {
        return ErrorOf(errno, PathOf(name));
      }
    }
    if (fd < 0) fd = ::openat(folder_fd_, name.c_str(), flags, 0600);
    if (fd < 0) return ErrorOf(errno, PathOf(name));
    const auto free = std::ranges::find(files_, -1, &OpenFile::fd);
    const size_t index = static_cast<size_t>(free - files_.begin());
    if (free == files_.end()) files_.emplace_back();
    files_[index] = {.fd = fd, .name = name};
    return DiskFile{static_cast<uint32_t>(index)};
  }

  void Close(DiskFile file) override {
    OpenFile& open = FileOf(file);
    KVIST_CHECK(open.in_flight == 0);
    ::close(std::exchange(open.fd, -1));
  }

  absl::StatusOr<uint64_t> Size(DiskFile file) override {
    struct stat status {};
    if (::fstat(FileOf(file).fd, &status) != 0) return ErrorOf(errno, PathOf(FileOf(file).name));
    return static_cast<uint64_t>(status.st_size);
  }

  absl::Status Truncate(DiskFile file, uint64_t bytes) override {
    return Outcome(::ftruncate(FileOf(file).fd, static_cast<off_t>(bytes)), FileOf(file).name);
  }

  absl::Status Erase(DiskFile file, uint64_t offset, uint64_t bytes) override {
    KVIST_CHECK(offset % kDirectAlignment == 0 && bytes % kDirectAlignment == 0);
    const OpenFile& open = FileOf(file);
    if (::fallocate(open.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                    static_cast<off_t>(bytes)) == 0) {
      return absl::OkStatus();
    }
    if (errno != EOPNOTSUPP && errno != ENOSYS) return ErrorOf(errno, PathOf(open.name));
    const DiskMemory zeros(std::min<uint64_t>(bytes, 1u << 20));
    for (uint64_t done = 0; done < bytes;) {
      const auto step = static_cast<size_t>(std::min<uint64_t>(bytes - done, zeros.size()));
      const ssize_t wrote = ::pwrite(open.fd, zeros.data(), step, static_cast<off_t>(offset + done));
      if (wrote < 0 && errno == EINVAL && StopDirect(open.fd)) continue;
      if (wrote < 0 && errno != EINTR) return ErrorOf(errno, PathOf(open.name));
      if (wrote > 0) done += static_cast<uint64_t>(wrote);
    }
    return absl::OkStatus();
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Outcome(::renameat(folder_fd_, from.c_str(), folder_fd_, to.c_str()), from);
  }
  absl::Status Unlink(const std::string& name) override {
    return Outcome(::unlinkat(folder_fd_, name.c_str(), 0), name);
  }

  absl::StatusOr<std::vector<std::string>> List() override {
    std::error_code error;
    std::vector<std::string> names;
    for (std::filesystem::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
      std::error_code ignored;
      if (it->is_regular_file(ignored)) names.push_back(it->path().filename().string());
    }
    if (error) return ErrorOf(error.value(), folder_);
    std::ranges::sort(names);
    return names;
  }

  absl::Status SyncFolder() override { return Outcome(::fsync(folder_fd_), "."); }

  absl::Status Lock(const std::string& name) override {
    KVIST_CHECK(lock_fd_ < 0);
    const int fd = ::openat(folder_fd_, name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return ErrorOf(errno, PathOf(name));
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      ::close(fd);
      if (error == EWOULDBLOCK) return absl::UnavailableError(Cat(PathOf(name), ": another process has it"));
      return ErrorOf(error, PathOf(name));
    }
    lock_fd_ = fd;
    return absl::OkStatus();
  }

  bool IsLocked(const std::string& name) override {
    if (lock_fd_ >= 0) return false;
    const int fd = ::openat(folder_fd_, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return false;
    const bool locked = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    ::close(fd);
    return locked;
  }

  uint64_t FreeBytes() override { return FreeDiskBytes(folder_); }

  absl::Status CheckFolder() override {
    struct stat opened {
    }, there{};
    const bool same = ::fstat(folder_fd_, &opened) == 0 && ::stat(folder_.c_str(), &there) == 0 &&
                      opened.st_dev == there.st_dev && opened.st_ino == there.st_ino;
    return same ? absl::OkStatus() : absl::NotFoundError(Cat(folder_, ": the folder was removed, or is another one"));
  }

  void Submit(std::span<const DiskRequest> requests) override {
    for (const DiskRequest& request : requests) {
      KVIST_CHECK(request.buffers.size() <= kDiskBuffersMax);
      auto job = std::make_unique<DiskJob>();
      job->kind = request.kind;
      job->file = request.file;
      job->fd = FileOf(request.file).fd;
      job->offset = request.offset;
      job->tag = request.tag;
      for (const DiskBuffer& buffer : request.buffers) {
        if (buffer.bytes == 0) continue;
        job->pieces.push_back({.iov_base = buffer.data, .iov_len = buffer.bytes});
        job->total += buffer.bytes;
      }
      ++FileOf(request.file).in_flight;
      waiting_.push_back(std::move(job));
    }
    StartWaiting();
  }

  void Poll(std::vector<DiskCompletion>& out, bool wait) override {
    if (started_ == 0) return;
    done_.clear();
    engine_->Collect(done_, wait);
    while (wait && done_.empty()) engine_->Collect(done_, true);
    for (const std::unique_ptr<DiskJob>& job : done_) {
      OpenFile& file = FileOf(job->file);
      --file.in_flight;
      out.push_back({.tag = job->tag,
                     .bytes = job->done,
                     .status = job->error == 0 ? absl::OkStatus() : ErrorOf(job->error, PathOf(file.name))});
    }
    started_ -= done_.size();
    StartWaiting();
  }

  size_t in_flight() const override { return started_ + waiting_.size(); }

 private:
  struct OpenFile {
    int fd = -1;
    std::string name;
    size_t in_flight = 0;
  };

  OpenFile& FileOf(DiskFile file) {
    KVIST_CHECK(file.value < files_.size() && files_[file.value].fd >= 0);
    return files_[file.value];
  }
  std::string PathOf(const std::string& name) const { return folder_ + "/" + name; }
  absl::Status Outcome(int result, const std::string& name) const {
    return result == 0 ? absl::OkStatus() : ErrorOf(errno, PathOf(name));
  }

  void StartWaiting() {
    bool any = false;
    for (; !waiting_.empty() && started_ < depth_max_; any = true) {
      engine_->Start(std::move(waiting_.front()));
      waiting_.pop_front();
      ++started_;
    }
    if (any) engine_->Flush();
  }

  const std::string folder_;
  const int folder_fd_;
  const size_t depth_max_;
  bool direct_;
  int lock_fd_ = -1;
  std::unique_ptr<DiskEngineBase> engine_;
  std::vector<OpenFile> files_;  ///< [DiskFile]
  std::deque<std::unique_ptr<DiskJob>> waiting_;
  size_t started_ = 0;
  std::vector<std::unique_ptr<DiskJob>> done_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Disk>> OpenRealDisk(const std::string& folder, const RealDiskOptions& options) {
  if (options.create && ::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return ErrorOf(errno, folder);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrorOf(errno, folder);
  struct stat status {};
  if (::fstat(fd, &status) != 0 || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    ::close(fd);
    return absl::PermissionDeniedError(Cat(folder, ": others than its owner may write into this folder"));
  }
  std::unique_ptr<DiskEngineBase> engine;
  if (options.engine != DiskEngine::kThreads) {
    absl::StatusOr<std::unique_ptr<DiskEngineBase>> uring = MakeUringEngine(options.depth_max);
    if (uring.ok()) {
      engine = *std::move(uring);
    } else if (options.engine == DiskEngine::kUring) {
      ::close(fd);
      return Annotate(uring.status(), folder);
    }
  }
  if (engine == nullptr) engine = MakeThreadsEngine(std::min(kFallbackThreads, std::max(options.depth_max, 1u)));
  return std::make_unique<RealDisk>(folder, fd, options, std::move(engine));
}

}  // namespace kvist
