#pragma once

/// @file
/// Writes a packed cache beside the work of a model that has just started: a thread that runs when others leave it the
/// processor. Non-goals: what is written (packed_cache.h).

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "exec/cpu/packed_cache.h"

namespace kvist::exec {

/// How a write ended: OK, or why there is no cache. Called on the writing thread.
using CacheNotice = std::function<void(const std::string& path, const absl::Status& status)>;

/// One write. Threads: one owner.
class PackedWriter {
 public:
  /// @param data  must not change and must outlive the writer.
  PackedWriter(PackedCache cache, std::span<const std::byte> data, const Hash128& content, CacheNotice notice);
  /// Gives a write that is under way some seconds more; what has not ended then is given up.
  ~PackedWriter();
  PackedWriter(const PackedWriter&) = delete;
  PackedWriter& operator=(const PackedWriter&) = delete;

  /// Until it has ended. @return  how.
  absl::Status Wait();

 private:
  void Run(std::span<const std::byte> data, const Hash128& content, const CacheNotice& notice);

  const PackedCache cache_;
  std::atomic<bool> give_up_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<absl::Status> result_;
  std::thread thread_;
};

}  // namespace kvist::exec
