#pragma once

/// @file
/// One piece of work that goes on beside a model that has just started, on a thread of its own.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/status/status.h"

namespace kvist::exec {

/// Threads: one owner.
class BackgroundTask {
 public:
  /// @param go_on  asked by the work several times a second; false = end now.
  using Work = std::function<absl::Status(const std::function<bool()>& go_on)>;

  /// @param patience  how long the destructor lets the work go on.
  BackgroundTask(std::chrono::milliseconds patience, Work work);
  ~BackgroundTask();
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  /// Until it has ended. @return  how.
  absl::Status Wait();

 private:
  void Run(const Work& work);

  const std::chrono::milliseconds patience_;
  std::atomic<bool> give_up_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<absl::Status> result_;
  std::thread thread_;
};

}  // namespace kvist::exec
