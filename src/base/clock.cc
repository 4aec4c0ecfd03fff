#include "base/clock.h"

#include <chrono>

#include "base/check.h"

namespace kvist {

TimeNs RealClock::Now() const {
  auto t = std::chrono::steady_clock::now().time_since_epoch();
  return TimeNs{std::chrono::duration_cast<std::chrono::nanoseconds>(t).count()};
}

void VirtualClock::AdvanceTo(TimeNs t) {
  KVIST_CHECK(t >= Now());
  now_.store(t.value, std::memory_order_release);
}

}  // namespace kvist
