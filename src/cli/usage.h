#pragma once

/// @file
/// What the program says when no command, or an unknown one, is named. Pure; one thread.

#include <string>

#include <CLI/CLI.hpp>

namespace kvist::cli {

/// A line for each command: its name and what it does.
std::string CommandList(const CLI::App& app);

/// Why these arguments name no command, with the commands there are; empty when they name one, or a flag comes first.
std::string CommandFault(const CLI::App& app, int argc, const char* const* argv);

/// For flags that the command that was parsed does not know: a line for each that is nearly the name of one that it
/// knows.
std::string FlagHints(const CLI::App& app);

}  // namespace kvist::cli
