#pragma once

/// @file
/// What somebody who mistyped a name may have meant. Pure; any thread.

#include <string>
#include <string_view>
#include <vector>

namespace kvist::cli {

/// " (did you mean '...'?)", to end a sentence with, where one of `known` is two letters away or less; else "".
std::string NearWord(std::string_view word, const std::vector<std::string>& known);

}  // namespace kvist::cli
