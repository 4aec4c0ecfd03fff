#pragma once

/// @file
/// The time of one operation on a device with one or several processors. Pure; any thread.

#include "device/device.h"

namespace kvist::cost {

struct Operation {
  device::Work work = device::Work::kMatmul;
  double flops = 0;                               ///< A multiplication and an addition are two.
  double bytes = 0;                               ///< To and from memory.
  device::Number number = device::Number::kBf16;  ///< Of the arithmetic.
};

/// What it takes on one processor. REQUIRES: the processor does this work.
double OperationNs(const device::Device& device, const device::Processor& processor, const Operation& operation);

/// Where an operation ends first, and when. Experts are many small operations: with several processors they are shared
/// so that all end together (Duplex, MICRO 2024). Launch gaps included.
struct Placed {
  double ns = 0;
  int32_t processor = -1;  ///< Index; -1 = nobody does this work, or several share it.
};
Placed PlaceOperation(const device::Device& device, const Operation& operation, bool captured);

/// Two operations that do not wait for each other: side by side on two processors where that ends first.
double PairNs(const device::Device& device, const Operation& a, const Operation& b, bool captured);

}  // namespace kvist::cost
