#pragma once

/// @file
/// A load test's report as one HTML page without anything from elsewhere: figures, plots, faults. Legible on a phone,
/// in dark and light, and by a screen reader: each plot has a name and says its figures in words. Pure; any thread.

#include <string>

#include "lab/load_report.h"

namespace kvist::lab {

std::string LoadHtml(const LoadReport& report);

}  // namespace kvist::lab
