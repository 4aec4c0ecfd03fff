#pragma once

/// @file
/// Transfers over one direction of a link, one after the other: each starts when it is asked for or when the one before
/// has ended, and takes what it costs alone (transfer.h) and the host's setup. Plain arithmetic on instants; threads:
/// none shared.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cost/transfer.h"
#include "device/device.h"

namespace kvist::cost {

struct LinkUse {
  uint64_t transfers = 0;
  double bytes = 0;
  int64_t waited_ns = 0;  ///< For transfers before them, in all.
  int64_t busy_ns = 0;

  LinkUse& operator+=(const LinkUse& other) {
    transfers += other.transfers;
    bytes += other.bytes;
    waited_ns += other.waited_ns;
    busy_ns += other.busy_ns;
    return *this;
  }
};

class LinkQueue {
 public:
  explicit LinkQueue(device::Link link) : link_(std::move(link)) {}

  /// Without waiting: setup, latency, bytes over bandwidth. No bytes take no time.
  int64_t ServiceNs(double bytes) const {
    return bytes <= 0 ? 0 : static_cast<int64_t>(link_.setup_ns + TransferNs(link_, bytes));
  }
  /// How long a transfer that was asked for now would wait.
  int64_t WaitNs(int64_t now_ns) const { return std::max<int64_t>(free_at_ns_ - now_ns, 0); }

  /// @param now_ns  not before that of the last call  @return when it has ended
  int64_t Take(int64_t now_ns, double bytes) {
    const int64_t wait_ns = WaitNs(now_ns), service_ns = ServiceNs(bytes);
    free_at_ns_ = now_ns + wait_ns + service_ns;
    ++use_.transfers;
    use_.bytes += bytes;
    use_.waited_ns += wait_ns;
    use_.busy_ns += service_ns;
    return free_at_ns_;
  }

  const LinkUse& use() const { return use_; }

 private:
  const device::Link link_;
  int64_t free_at_ns_ = 0;
  LinkUse use_;
};

}  // namespace kvist::cost
