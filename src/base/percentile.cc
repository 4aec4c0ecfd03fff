#include "base/percentile.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace kvist {

double Percentile(std::span<double> values, double share) {
  KVIST_CHECK(!values.empty() && share >= 0 && share <= 1);
  const double at = share * static_cast<double>(values.size() - 1);
  const auto low = values.begin() + static_cast<std::ptrdiff_t>(at);
  std::nth_element(values.begin(), low, values.end());
  const auto high = std::min_element(low + 1, values.end());
  return std::lerp(*low, high == values.end() ? *low : *high, at - std::floor(at));
}

}  // namespace kvist
