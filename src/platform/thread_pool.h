#pragma once

/// @file
/// A fixed team of workers that run one function together: the caller is worker 0. Between calls the others spin for a
/// short while, then sleep. Non-goals: queues, futures, work stealing.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace kvist {

/// Threads: one caller at a time.
class ThreadPool {
 public:
  /// @param threads  workers, the caller included; at least 1.
  explicit ThreadPool(uint32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t threads() const { return threads_; }

  /// Runs `body(worker)` once for every worker in [0, threads) and returns when all have ended. `body` must not throw.
  template <class Body>
  void Run(Body&& body) {
    RunErased([](void* context, uint32_t worker) { (*static_cast<std::remove_reference_t<Body>*>(context))(worker); },
              &body);
  }

  /// Runs `body(index)` for every index in [0, count), handed out one by one.
  template <class Body>
  void ForEach(uint32_t count, Body&& body) {
    std::atomic<uint32_t> next{0};
    Run([&](uint32_t) {
      for (uint32_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
           i = next.fetch_add(1, std::memory_order_relaxed)) {
        body(i);
      }
    });
  }

 private:
  using Function = void (*)(void* context, uint32_t worker);
  void RunErased(Function function, void* context);
  void WorkerLoop(uint32_t worker);
  bool WaitForRound(uint64_t seen);

  const uint32_t threads_;
  Function function_ = nullptr;
  void* context_ = nullptr;
  std::atomic<uint64_t> round_{0};      ///< Bumped for every Run.
  std::atomic<uint32_t> running_{0};    ///< Workers that have not ended this round.
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
};

/// Cores that this process may use: its affinity mask, and the control group's quota (rounded up) where that is lower.
uint32_t UsableCores();

/// Lets a fixed team wait for each other inside one ThreadPool::Run. Spins, and offers the processor now and then.
class SpinBarrier {
 public:
  explicit SpinBarrier(uint32_t team) : team_(team) {}
  void Wait();

 private:
  const uint32_t team_;
  std::atomic<uint32_t> arrived_{0};
  std::atomic<uint32_t> phase_{0};
};

/// Equal shares of [0, count) in multiples of one: share `part` of `parts` is [first, second).
constexpr std::pair<uint32_t, uint32_t> ShareOf(uint32_t count, uint32_t part, uint32_t parts) {
  return {static_cast<uint32_t>(uint64_t{count} * part / parts),
          static_cast<uint32_t>(uint64_t{count} * (part + 1) / parts)};
}

}  // namespace kvist
