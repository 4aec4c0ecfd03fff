#include "exec/cpu/background_task.h"

#include <utility>

namespace kvist::exec {

BackgroundTask::BackgroundTask(std::chrono::milliseconds patience, Work work)
    : patience_(patience), thread_([this, held = std::move(work)] { Run(held); }) {}

BackgroundTask::~BackgroundTask() {
  {
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, patience_, [this] { return result_.has_value(); });
  }
  give_up_.store(true);
  thread_.join();
}

absl::Status BackgroundTask::Wait() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return result_.has_value(); });
  return *result_;
}

void BackgroundTask::Run(const Work& work) {
  const absl::Status status = work([this] { return !give_up_.load(); });
  std::lock_guard lock(mutex_);
  result_ = status;
  ended_.notify_all();
}

}  // namespace kvist::exec
