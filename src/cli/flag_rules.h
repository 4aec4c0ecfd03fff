#pragma once

/// @file
/// Flags that do something only with another flag, or only without it: one table for all commands. A flag that would
/// be ignored is refused, so that nobody waits for what it does not do. Pure; one thread. Non-goals: values of flags.

#include <vector>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "cli/settings.h"

namespace kvist::cli {

/// Errors: InvalidArgument naming both flags, and the place of a setting. What a file or a variable sets to the
/// default says nothing (a settings file may have every flag); on the command line it is refused as well.
/// @param given  to `command`, from wherever; of several for one flag the first counts
absl::Status CheckFlagRules(const CLI::App& command, const std::vector<Setting>& given);

}  // namespace kvist::cli
