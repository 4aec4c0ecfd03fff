#include "cost/transfer.h"

#include <algorithm>
#include <bit>

namespace kvist::cost {

double TransferNs(const device::Link& link, double bytes) {
  if (bytes <= 0) return 0;
  return link.latency_ns + bytes / (link.bandwidth * link.efficiency.At(bytes)) * 1e9;
}

double AllReduceNs(const device::Link& link, Reduction how, uint32_t devices, double bytes) {
  if (devices < 2 || bytes <= 0) return 0;
  const double rate = link.bandwidth * link.reduce_efficiency.At(bytes) * 1e-9;  // Bytes a nanosecond.
  switch (how) {
    case Reduction::kRing:
      return 2.0 * (devices - 1) * (link.latency_ns + bytes / devices / rate);
    case Reduction::kTree:
      return 2.0 * std::bit_width(devices - 1) * (link.latency_ns + bytes / rate);
    case Reduction::kDoubling:
      return std::bit_width(devices - 1) * (link.latency_ns + bytes / rate);
    case Reduction::kInSwitch:
      return link.latency_ns + bytes / rate;
  }
  return 0;
}

double AllReduceNs(const device::Link& link, uint32_t devices, double bytes) {
  if (link.reduces_in_switch) return AllReduceNs(link, Reduction::kInSwitch, devices, bytes);
  const double ring = AllReduceNs(link, Reduction::kRing, devices, bytes);
  const Reduction other = std::has_single_bit(devices) ? Reduction::kDoubling : Reduction::kTree;
  return std::min(ring, AllReduceNs(link, other, devices, bytes));
}

double AllGatherNs(const device::Link& link, uint32_t devices, double bytes_each) {
  if (devices < 2) return 0;
  return (devices - 1) * TransferNs(link, bytes_each);
}

}  // namespace kvist::cost
