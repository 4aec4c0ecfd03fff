#include "exec/cpu/packed_writer.h"

#include <chrono>
#include <utility>

#include "platform/thread_pool.h"

namespace kvist::exec {
namespace {

/// A program that has answered waits so long for its cache: 1 GB is written in less.
constexpr std::chrono::seconds kPatience(5);

}  // namespace

PackedWriter::PackedWriter(PackedCache cache, std::span<const std::byte> data, const Hash128& content,
                           CacheNotice notice)
    : cache_(std::move(cache)),
      thread_([this, data, content, told = std::move(notice)] { Run(data, content, told); }) {}

PackedWriter::~PackedWriter() {
  {
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, kPatience, [this] { return result_.has_value(); });
  }
  give_up_.store(true);
  thread_.join();
}

absl::Status PackedWriter::Wait() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return result_.has_value(); });
  return *result_;
}

void PackedWriter::Run(std::span<const std::byte> data, const Hash128& content, const CacheNotice& notice) {
  LowerPriority();
  const absl::Status status = cache_.Write(data, content, [this] { return !give_up_.load(); });
  if (notice) notice(cache_.path(), status);
  std::lock_guard lock(mutex_);
  result_ = status;
  ended_.notify_all();
}

}  // namespace kvist::exec
