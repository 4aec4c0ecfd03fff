#include "platform/thread_pool.h"

#include <immintrin.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/check.h"

namespace kvist {
namespace {

/// Pauses before a waiting worker sleeps: about 100 us, longer than the gaps inside a step.
constexpr int kSpins = 2000;
/// After so many pauses the processor is offered to others now and then, so that more workers than cores still make
/// progress. Not earlier: on a busy machine a worker that gives its core away gets it back a time slice later.
constexpr int kSpinsBeforeYield = 1000, kSpinsPerYield = 64;

/// One turn of waiting; `spin` counts from 1.
void Pause(int spin) {
  _mm_pause();
  if (spin > kSpinsBeforeYield && spin % kSpinsPerYield == 0) std::this_thread::yield();
}

}  // namespace

ThreadPool::ThreadPool(uint32_t threads) : threads_(threads) {
  KVIST_CHECK(threads >= 1);
  for (uint32_t worker = 1; worker < threads; ++worker) {
    workers_.emplace_back([this, worker] { WorkerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_.store(true);
    round_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunErased(Function function, void* context) {
  if (threads_ == 1) {
    function(context, 0);
    return;
  }
  function_ = function;
  context_ = context;
  running_.store(threads_ - 1, std::memory_order_relaxed);
  round_.fetch_add(1);  // Sequentially consistent, as is the sleepers' counter: one of the two sides sees the other.
  if (sleepers_.load() > 0) {
    std::lock_guard lock(mutex_);
    wake_.notify_all();
  }
  function(context, 0);
  for (int spin = 1; running_.load(std::memory_order_acquire) != 0; ++spin) {
    Pause(spin);
  }
}

bool ThreadPool::WaitForRound(uint64_t seen) {
  for (int spin = 1; spin < kSpins; ++spin) {
    if (round_.load(std::memory_order_acquire) != seen) return !stop_.load();
    Pause(spin);
  }
  std::unique_lock lock(mutex_);
  sleepers_.fetch_add(1);
  wake_.wait(lock, [&] { return round_.load() != seen; });
  sleepers_.fetch_sub(1);
  return !stop_.load();
}

void ThreadPool::WorkerLoop(uint32_t worker) {
  for (uint64_t round = 0; WaitForRound(round);) {
    ++round;
    function_(context_, worker);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

uint32_t UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  uint32_t cores = ::sched_getaffinity(0, sizeof(set), &set) == 0 ? static_cast<uint32_t>(CPU_COUNT(&set))
                                                                  : std::thread::hardware_concurrency();
  std::ifstream file("/sys/fs/cgroup/cpu.max");  // "quota period", or "max period".
  uint64_t quota = 0, period = 0;
  if (file >> quota >> period && period > 0) {
    cores = std::min(cores, static_cast<uint32_t>(std::max<uint64_t>(1, (quota + period - 1) / period)));
  }
  return std::max(1u, cores);
}

void LowerPriority() {
  constexpr int kNicest = 19;
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNicest);  // Linux: of one thread. Only a wish.
}

void JobSequence::Wait(int spin) {
  Pause(spin);
}

}  // namespace kvist
