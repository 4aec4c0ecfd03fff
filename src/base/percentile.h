#pragma once

/// @file
/// One rule for percentiles, wherever people read them. Pure; any thread.

#include <span>

namespace kvist {

/// The value that this share of `values` lies below, linear between neighbours: of 1, 2, 3 and 4 the half is 2.5. Takes
/// time linear in their number, which may be millions.
/// @param values  REQUIRES: not empty; their order changes. @param share  from 0 to 1
double Percentile(std::span<double> values, double share);

}  // namespace kvist
