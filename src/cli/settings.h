#pragma once

/// @file
/// Flags of a command from elsewhere than its command line: environment variables and kvist.toml. What the command
/// line says wins over the environment, that over the file, that over defaults. docs/operations.md describes it for
/// users. One thread. Non-goals: what a setting means; its flag knows.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kvist::cli {

/// Value of an environment variable, or nullptr; as std::getenv.
using Environment = std::function<const char*(const std::string& name)>;

/// One flag that is set outside the command line.
struct Setting {
  std::string flag;                 ///< Without dashes; "model" for the positional MODEL.
  std::vector<std::string> values;  ///< Several only for flags that may be repeated.
  std::string place;                ///< "kvist.toml:3:8" or the variable's name; for errors.
};

/// The file that settings are read from: `given` (of --config), else $KVIST_CONFIG, else
/// $XDG_CONFIG_HOME/kvist/kvist.toml or ~/.config/kvist/kvist.toml where that exists, else "".
std::string SettingsFile(std::string_view given, const Environment& environment);

/// "KVIST_SERVE_KV_MEMORY" for "kv-memory" of "serve".
std::string VariableName(std::string_view command, std::string_view flag);

/// Settings of `command` in a file: those of the table with its name. Tables of other commands are left alone.
/// @param text  of the file, `path` its name in errors.
/// Errors: InvalidArgument with file, line and column: not TOML; a table that is no command; a key that is no flag
/// (with the nearest one); a value of another kind than the flag's: text for a number, say.
absl::StatusOr<std::vector<Setting>> ParseSettings(const CLI::App& command, std::string_view path,
                                                   std::string_view text);

/// Settings of `command` in the environment.
std::vector<Setting> SettingsOf(const CLI::App& command, const Environment& environment);

/// All that the environment and the file say. @param config  of --config; "" = not given.
/// Errors: those of reading the file and of ParseSettings.
absl::StatusOr<std::vector<Setting>> OtherSettings(const CLI::App& command, std::string_view config);

/// For each of `variables` whose name begins with KVIST_ and means nothing to any command of `app`, nor to a tool
/// beside kvist: a sentence that names it and the nearest one that does mean something.
std::vector<std::string> UnknownVariables(const CLI::App& app, const std::vector<std::string>& variables);

/// The flag of a setting, or nullptr.
const CLI::Option* OptionOf(const CLI::App& command, std::string_view flag);

/// Names of the flags of `command` that settings can give.
std::vector<std::string> FlagsOf(const CLI::App& command);

/// What the flags of `command` were given so far, as settings: of whatever source.
std::vector<Setting> GivenOn(const CLI::App& command);

/// Gives each flag that the command line left out its setting; earlier settings win.
/// Errors: InvalidArgument with the place and what the flag says about the value.
absl::Status Apply(CLI::App& command, const std::vector<Setting>& settings);

/// A file for `command` with every flag it has, commented out: what it does and what it is when left alone.
std::string SettingsTemplate(const CLI::App& command);

/// Registers --config with every command of `app` and applies settings to the chosen one before it runs. Call after
/// all commands are added.
void AddSettings(CLI::App& app);

}  // namespace kvist::cli
