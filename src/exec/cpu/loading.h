#pragma once

/// @file
/// What the ways of loading weights have in common: sharing work among threads, telling how far it is, and the report.

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "platform/thread_pool.h"

namespace kvist::exec {

/// Called now and then from the loading thread.
using LoadProgress = std::function<void(uint64_t bytes_done, uint64_t bytes_total)>;

/// Threads that read a file which is not in the page cache. More than cores: while some wait for the disk, others check
/// or pack what has come.
inline constexpr uint32_t kColdReaders = 8;
/// A file of which less than this share is in the page cache is read as a cold one.
inline constexpr double kWarmShare = 0.9;

/// Where packed weights came from.
enum class WeightSource : uint8_t {
  kModel,   ///< Packed from the model file.
  kCache,   ///< From the packed cache.
  kMapped,  ///< Used where they lie in the packed cache: they are larger than memory.
};

struct LoadReport {
  WeightSource source = WeightSource::kModel;
  bool cold = false;       ///< What was read was not in the page cache.
  std::string cache_path;  ///< Empty when there is no cache for this model.
  std::string cache_miss;  ///< Why the cache was not used, where there is one.
};

/// Runs `body(index, worker)`, which returns a Status, for every index in [0, count), handed out one by one. After the
/// first error nothing new is begun. @return  that error.
template <class Body>
absl::Status ForEachUntilError(ThreadPool& pool, uint32_t count, Body&& body) {
  std::atomic<uint32_t> next{0};
  std::mutex mutex;
  absl::Status first;
  pool.Run([&](uint32_t worker) {
    for (uint32_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      absl::Status status = body(i, worker);
      if (status.ok()) continue;
      next.store(count);
      std::lock_guard lock(mutex);
      first.Update(status);
    }
  });
  return first;
}

}  // namespace kvist::exec
