#include "platform/disk_engine.h"

#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "platform/direct_io.h"

namespace kvist {

bool DiskJob::Take(int64_t result) {
  if (result == -EINTR || result == -EAGAIN) return false;
  if (result < 0) {
    if (result == -EINVAL && kind != DiskRequest::Kind::kSync && StopDirect(fd)) return false;
    error = static_cast<int>(-result);
    return true;
  }
  if (kind == DiskRequest::Kind::kSync) return true;
  if (result == 0) {
    if (kind == DiskRequest::Kind::kWrite && done < total) error = EIO;
    return true;
  }
  done += static_cast<uint64_t>(result);
  offset += static_cast<uint64_t>(result);
  auto left = static_cast<size_t>(result);
  while (left > 0) {
    iovec& piece = pieces[first];
    const size_t step = std::min(left, piece.iov_len);
    piece.iov_base = static_cast<std::byte*>(piece.iov_base) + step;
    piece.iov_len -= step;
    left -= step;
    if (piece.iov_len == 0) ++first;
  }
  // A read that ends inside a disk block met the file's end; going on would be refused.
  return done == total || (kind == DiskRequest::Kind::kRead && done % kDiskAddressAlignment != 0);
}

namespace {

class UringEngine final : public DiskEngineBase {
 public:
  static absl::StatusOr<std::unique_ptr<DiskEngineBase>> Make(uint32_t depth_max) {
    auto engine = std::unique_ptr<UringEngine>(new UringEngine);
    const int result = ::io_uring_queue_init(std::max(depth_max, 1u), &engine->ring_, 0);
    if (result < 0) {
      return absl::UnavailableError(Cat("io_uring: ", std::generic_category().message(-result)));
    }
    engine->open_ = true;
    return engine;
  }
  ~UringEngine() override {
    if (open_) ::io_uring_queue_exit(&ring_);
  }

  std::string name() const override { return "io_uring"; }

  void Start(std::unique_ptr<DiskJob> job) override {
    Prepare(job.get());
    job.release();  // The ring holds it until its completion.
  }

  void Flush() override {
    while (::io_uring_sq_ready(&ring_) > 0) {
      const int result = ::io_uring_submit(&ring_);
      // The kernel is short of something: whatever is under way has to end first; Collect tries again.
      if (result == -EAGAIN || result == -EBUSY) return;
      KVIST_CHECK(result >= 0 || result == -EINTR);
    }
  }

  void Collect(std::vector<std::unique_ptr<DiskJob>>& done, bool wait) override {
    Flush();
    for (bool first = true;; first = false) {
      io_uring_cqe* cqe = nullptr;
      const bool block = wait && first;
      const int result = block ? ::io_uring_wait_cqe(&ring_, &cqe) : ::io_uring_peek_cqe(&ring_, &cqe);
      if (result < 0 || cqe == nullptr) break;  // Nothing is there (yet), or a signal came.
      auto* job = static_cast<DiskJob*>(::io_uring_cqe_get_data(cqe));
      const int64_t outcome = cqe->res;
      ::io_uring_cqe_seen(&ring_, cqe);
      if (job->Take(outcome)) {
        done.emplace_back(job);
      } else {
        Prepare(job);
        Flush();
      }
    }
  }

 private:
  UringEngine() = default;

  void Prepare(DiskJob* job) {
    io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
    while (sqe == nullptr) {
      Flush();
      sqe = ::io_uring_get_sqe(&ring_);
    }
    const std::span<iovec> rest = job->rest();
    const auto count = static_cast<unsigned>(rest.size());
    switch (job->kind) {
      case DiskRequest::Kind::kRead:
        ::io_uring_prep_readv(sqe, job->fd, rest.data(), count, job->offset);
        break;
      case DiskRequest::Kind::kWrite:
        ::io_uring_prep_writev(sqe, job->fd, rest.data(), count, job->offset);
        break;
      case DiskRequest::Kind::kSync:
        ::io_uring_prep_fsync(sqe, job->fd, IORING_FSYNC_DATASYNC);
        break;
    }
    ::io_uring_sqe_set_data(sqe, job);
  }

  io_uring ring_{};
  bool open_ = false;
};

class ThreadsEngine final : public DiskEngineBase {
 public:
  explicit ThreadsEngine(uint32_t threads) {
    for (uint32_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { Work(); });
    }
  }
  ~ThreadsEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::string name() const override { return "threads"; }

  void Start(std::unique_ptr<DiskJob> job) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(job));
    }
    wake_.notify_one();
  }
  void Flush() override {}

  void Collect(std::vector<std::unique_ptr<DiskJob>>& done, bool wait) override {
    std::unique_lock lock(mutex_);
    if (wait) done_wake_.wait(lock, [this] { return !done_.empty(); });
    for (auto& job : done_) done.push_back(std::move(job));
    done_.clear();
  }

 private:
  static int64_t Call(DiskJob& job) {
    const std::span<iovec> rest = job.rest();
    const auto count = static_cast<int>(rest.size());
    const auto offset = static_cast<off_t>(job.offset);
    int64_t result = 0;
    switch (job.kind) {
      case DiskRequest::Kind::kRead:
        result = ::preadv(job.fd, rest.data(), count, offset);
        break;
      case DiskRequest::Kind::kWrite:
        result = ::pwritev(job.fd, rest.data(), count, offset);
        break;
      case DiskRequest::Kind::kSync:
        result = ::fdatasync(job.fd);
        break;
    }
    return result < 0 ? -errno : result;
  }

  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
      if (waiting_.empty()) return;  // And told to stop: what was started is done first, as its memory is in use.
      std::unique_ptr<DiskJob> job = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      while (!job->Take(Call(*job))) {
      }
      lock.lock();
      done_.push_back(std::move(job));
      done_wake_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_wake_;
  std::deque<std::unique_ptr<DiskJob>> waiting_;
  std::vector<std::unique_ptr<DiskJob>> done_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DiskEngineBase>> MakeUringEngine(uint32_t depth_max) {
  return UringEngine::Make(depth_max);
}

std::unique_ptr<DiskEngineBase> MakeThreadsEngine(uint32_t threads) {
  return std::make_unique<ThreadsEngine>(threads);
}

}  // namespace kvist
