#pragma once

/// @file
/// Flags of tiers below hot memory, and what they became, for whoever starts a server.

#include <string>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "runtime/runtime.h"

namespace kvist::cli {

struct TierFlags {
  std::string cold_memory, disk_size, daily_writes;
  runtime::TierOptions tiers;
};

/// --kv-cold-memory, --kv-disk and those that begin with these, and --kv-admission.
void AddTierFlags(CLI::App& command, TierFlags& flags);

/// Puts them into the options. Errors: those of ParseByteSize, which the flags' own checks rule out.
absl::Status ResolveTiers(const TierFlags& flags, runtime::RuntimeOptions& options);

/// Says what was found; nothing without tiers.
void LogTiers(const runtime::Runtime& runtime, const runtime::TierOptions& options);

}  // namespace kvist::cli
