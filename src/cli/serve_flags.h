#pragma once

/// @file
/// Flags of `kvist serve`, and what of them may change while the server runs. Plain data and functions; one thread.

#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/device_flags.h"
#include "cli/model_flags.h"
#include "cli/settings.h"
#include "cli/tier_flags.h"
#include "serve/server.h"

namespace kvist::cli {

struct ServeFlags {
  ModelFlags model;
  TierFlags tiers;
  serve::ServerOptions server;
  std::string served_name, body_max, log_level = "info", log_format = "text";
  std::vector<std::string> api_keys;
  double drain_s = 30, forget_below = 0;
  double first_token_ms = 0, next_token_ms = 0;
  std::string length_model;
  DeviceFlags device;
  uint32_t output_tokens_mean = 200;  ///< Of an emulated device's answers.
  bool tokens_from_model = false;     ///< Emulate the device's time, and run the model for its tokens.
  bool json = false, no_reuse = false;
};

/// Registers them on `command`.
void AddServeFlags(CLI::App& command, ServeFlags& flags);

/// Checks flags and works out what follows from them. Errors: InvalidArgument naming a flag.
absl::Status Resolve(ServeFlags& flags);

/// Where the flags of a running server come from, to read them again.
struct ServeSources {
  std::vector<Setting> command_line;  ///< It wins over what changes elsewhere.
  std::vector<Setting> in_force;      ///< All that is not left alone, as it was applied last.
  std::vector<std::string> commands;  ///< Of the program: what tables kvist.toml may have.
  std::string config;                 ///< --config
};

/// What reading the environment's and the file's settings again came to.
struct ServeChange {
  ServeFlags flags;                  ///< Resolved.
  std::vector<Setting> in_force;     ///< For the next time; those of `restart` as they were.
  std::vector<std::string> changed;  ///< Flags that have another value and take effect now.
  std::vector<std::string> restart;  ///< Flags that have another value and cannot take effect now.
};

/// Whether a flag of `serve` takes effect when it is read again.
bool Reloads(std::string_view flag);

/// Errors: InvalidArgument, with the place: nothing may change then.
absl::StatusOr<ServeChange> ReadAgain(const ServeSources& sources);

}  // namespace kvist::cli
