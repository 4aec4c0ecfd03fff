#pragma once

/// @file
/// Numbers of things as people write them. Pure; any thread.

#include <cstdint>
#include <string>
#include <string_view>

namespace kvist {

/// "1 block", "0 blocks", "812,000 blocks". @param noun  for one; more of it end in "s"
std::string Counted(uint64_t count, std::string_view noun);

}  // namespace kvist
