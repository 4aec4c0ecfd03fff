#pragma once

/// @file
/// Messages over links: between two devices, and sums over a group. Alpha-beta model (Hockney, 1994): a message costs a
/// latency and its bytes over the bandwidth. Pure; any thread.

#include <cstdint>

#include "device/device.h"

namespace kvist::cost {

/// One message that is part of a captured step; one that the host starts takes link.setup_ns more. No bytes take no
/// time.
double TransferNs(const device::Link& link, double bytes);

/// How a sum over devices is made. Costs for n devices and B bytes each (Thakur, Rabenseifner, Gropp, IJHPCA 2005):
/// ring: 2 (n - 1) messages of B / n; tree: 2 log2(n) messages of B; recursive doubling, of a power of two of devices:
/// log2(n) messages of B both ways at once; in-switch: B once up and down, at the same time.
enum class Reduction : uint8_t { kRing, kTree, kDoubling, kInSwitch };

double AllReduceNs(const device::Link& link, Reduction how, uint32_t devices, double bytes);
/// The fastest that the link has.
double AllReduceNs(const device::Link& link, uint32_t devices, double bytes);
/// Every device gets the parts of all others: (n - 1) messages of the part.
double AllGatherNs(const device::Link& link, uint32_t devices, double bytes_each);

}  // namespace kvist::cost
