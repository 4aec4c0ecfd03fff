#include "cost/operation.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvist::cost {
namespace {

bool Does(const device::Processor& processor, device::Work work) {
  return processor.rates[static_cast<size_t>(work)].has_value();
}

/// An operation with what its start costs. The host starts one while another runs, so that launches show where
/// operations are shorter than they are (P28); between those of a graph there is only a gap.
double LaunchedNs(const device::Device& device, const device::Processor& processor, const Operation& operation,
                  bool captured) {
  const double ns = OperationNs(device, processor, operation) + processor.gap_ns;
  return captured ? ns : std::max(ns, processor.launch_ns);
}

/// Two things that overlap, but not wholly where they take about as long: the norm of order 3 of both. The order is the
/// one that fits kernel tables best (tools/fit_device.py): with the maximum alone, products of 64 to 256 rows come out
/// a tenth too short on three devices.
double Overlapped(double a, double b) {
  const double longer = std::max(a, b), shorter = std::min(a, b);
  if (shorter <= 0) return longer;
  const double ratio = shorter / longer;
  return longer * std::cbrt(1 + ratio * ratio * ratio);
}

}  // namespace

double OperationNs(const device::Device& device, const device::Processor& processor, const Operation& operation) {
  const device::Rates& rates = processor.rates[static_cast<size_t>(operation.work)]->For(operation.number);
  const double peak = processor.PeakOf(operation.number) * rates.compute_efficiency.At(operation.flops);
  const double bandwidth = device.MemoryOf(processor).bandwidth * rates.memory_efficiency.At(operation.bytes);
  return rates.latency_ns + Overlapped(operation.flops / peak, operation.bytes / bandwidth) * 1e9;
}

Placed PlaceOperation(const device::Device& device, const Operation& operation, bool captured) {
  if (operation.flops <= 0 && operation.bytes <= 0) return {};
  Placed best{.ns = std::numeric_limits<double>::infinity()};
  double shares = 0;
  uint32_t able = 0;
  for (size_t i = 0; i < device.processors.size(); ++i) {
    const device::Processor& processor = device.processors[i];
    if (!Does(processor, operation.work)) continue;
    const double ns = LaunchedNs(device, processor, operation, captured);
    shares += 1 / ns;
    able += 1;
    if (ns < best.ns) best = {ns, static_cast<int32_t>(i)};
  }
  if (operation.work == device::Work::kExperts && able > 1) return {1 / shares, -1};
  return best;
}

double PairNs(const device::Device& device, const Operation& a, const Operation& b, bool captured) {
  const double one_by_one = PlaceOperation(device, a, captured).ns + PlaceOperation(device, b, captured).ns;
  double best = one_by_one;
  for (const device::Processor& first : device.processors) {
    for (const device::Processor& second : device.processors) {
      if (&first == &second || !Does(first, a.work) || !Does(second, b.work)) continue;
      best = std::min(best, std::max(LaunchedNs(device, first, a, captured), LaunchedNs(device, second, b, captured)));
    }
  }
  return best;
}

}  // namespace kvist::cost
