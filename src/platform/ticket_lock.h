#pragma once

/// @file
/// A fair spin lock of 8 bytes for sections of some dozen instructions. Threads are served in order of arrival, so none
/// starves; where they outnumber cores, the next in line may be asleep, and waiters give their core away. Works with
/// std::lock_guard. Threads: any.

#include <immintrin.h>
#include <sched.h>

#include <atomic>
#include <cstdint>

namespace kvist {

class TicketLock {
 public:
  void lock() {
    const uint32_t ticket = next_.fetch_add(1, std::memory_order_relaxed);
    for (uint32_t spins = 0; serving_.load(std::memory_order_acquire) != ticket; ++spins) {
      if (spins < kSpins) {
        _mm_pause();
      } else {
        sched_yield();
      }
    }
  }

  void unlock() { serving_.store(serving_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

 private:
  static constexpr uint32_t kSpins = 256;  ///< Several times the longest section.

  std::atomic<uint32_t> next_{0}, serving_{0};
};

}  // namespace kvist
