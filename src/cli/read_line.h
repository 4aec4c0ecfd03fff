#pragma once

/// @file
/// Lines that a person types. One thread.

#include <optional>
#include <string>
#include <string_view>

namespace kvist::cli {

/// Shows `prompt` on standard error and reads a line from standard input, without its end. An interrupt throws the line
/// away and asks again. nullopt at the end of input (Ctrl-D).
std::optional<std::string> ReadLine(std::string_view prompt);

}  // namespace kvist::cli
