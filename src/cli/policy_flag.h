#pragma once

/// @file
/// The check of flags that name scheduling policies. Pure; one thread.

#include <CLI/CLI.hpp>

namespace kvist::cli {

/// One of sched::Policies(). For Option::check.
CLI::Validator KnownPolicy();

}  // namespace kvist::cli
