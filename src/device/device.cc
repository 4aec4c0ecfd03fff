#include "device/device.h"

#include <algorithm>

#include "base/check.h"

namespace kvist::device {

std::optional<Number> FindNumber(std::string_view name) {
  const auto found = std::ranges::find(kNumberNames, name);
  if (found == kNumberNames.end()) return std::nullopt;
  return static_cast<Number>(found - kNumberNames.begin());
}

double BytesOf(Number number) {
  switch (number) {
    case Number::kF32:
      return 4;
    case Number::kBf16:
      return 2;
    case Number::kFp8:
    case Number::kInt8:
      return 1;
    case Number::kFp4:
    case Number::kInt4:
      return 0.5 + 1.0 / 32;
  }
  return 4;
}

double Processor::PeakOf(Number number) const {
  // Narrow weights are widened where there is no arithmetic for them.
  switch (number) {
    case Number::kFp4:
    case Number::kInt4:
    case Number::kFp8:
    case Number::kInt8:
      if (const double own = peak_flops[static_cast<size_t>(number)]; own > 0) return own;
      [[fallthrough]];
    case Number::kBf16:
      if (const double own = peak_flops[static_cast<size_t>(Number::kBf16)]; own > 0) return own;
      [[fallthrough]];
    case Number::kF32:
      return peak_flops[static_cast<size_t>(Number::kF32)];
  }
  return 0;
}

const Memory& Device::MemoryOf(const Processor& processor) const {
  const auto found = std::ranges::find(memories, processor.memory, &Memory::name);
  KVIST_CHECK(found != memories.end());
  return *found;
}

double Device::capacity_bytes() const {
  double bytes = 0;
  for (const Memory& memory : memories) {
    if (memory.same_as.empty()) bytes += memory.capacity_bytes;
  }
  return bytes;
}

}  // namespace kvist::device
