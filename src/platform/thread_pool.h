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
  std::atomic<uint64_t> round_{0};    ///< Bumped for every Run.
  std::atomic<uint32_t> running_{0};  ///< Workers that have not ended this round.
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
};

/// Cores that this process may use: its affinity mask, and the control group's quota (rounded up) where that is lower.
uint32_t UsableCores();

/// From now on this thread gets the processor only where others leave it.
void LowerPriority();

/// Lets the workers of one ThreadPool::Run go through a sequence of jobs together. A job is cut into parts; whoever is
/// there takes the next part, and nobody goes on before all parts are done. A worker whose core was given to somebody
/// else delays the others by the part that it holds at most: they do the rest without it, and it skips what it missed.
class JobSequence {
 public:
  /// Where a worker stands; take one from Start() before ThreadPool::Run and give each worker a copy.
  using Turn = uint32_t;
  Turn Start() const { return static_cast<Turn>(state_.load(std::memory_order_acquire) >> 32); }

  /// Runs `body(part)` for the parts of [0, parts) that this worker gets. Every worker makes the same calls in the same
  /// order.
  template <class Body>
  void Share(Turn& turn, uint32_t parts, Body&& body) {
    if (parts == 0) return;
    for (int spin = 1;;) {
      uint64_t state = state_.load(std::memory_order_acquire);
      if (static_cast<Turn>(state >> 32) != turn) break;  // All parts are done; perhaps of later jobs, too.
      const uint32_t part = static_cast<uint32_t>(state);
      if (part >= parts) {
        Wait(spin++);
        continue;
      }
      if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) continue;
      body(part);
      if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == parts) {
        done_.store(0, std::memory_order_relaxed);
        state_.store(uint64_t{turn + 1} << 32, std::memory_order_release);
        break;
      }
    }
    ++turn;
  }

 private:
  static void Wait(int spin);

  std::atomic<uint64_t> state_{0};  ///< Turn of the current job << 32 | parts handed out.
  std::atomic<uint32_t> done_{0};   ///< Parts of the current job that are done.
};

/// Equal shares of [0, count) in multiples of one: share `part` of `parts` is [first, second).
constexpr std::pair<uint32_t, uint32_t> ShareOf(uint32_t count, uint32_t part, uint32_t parts) {
  return {static_cast<uint32_t>(uint64_t{count} * part / parts),
          static_cast<uint32_t>(uint64_t{count} * (part + 1) / parts)};
}

}  // namespace kvist
