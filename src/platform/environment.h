#pragma once

/// @file
/// The environment variables of this process. Any thread, while nobody changes them.

#include <string>
#include <vector>

namespace kvist {

/// Their names, in the system's order.
std::vector<std::string> VariableNames();

}  // namespace kvist
