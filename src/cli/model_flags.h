#pragma once

/// @file
/// Flags of the commands that run a model in this process, and how they become a runtime.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "absl/status/statusor.h"
#include "runtime/runtime.h"

namespace kvist::cli {

struct ModelFlags {
  std::string model;  ///< As given; empty = the default model.
  std::string kv_memory;
  std::string kv_type = "f16";
  std::string packed_cache;  ///< A folder or "off"; empty = the user's cache folder.
  /// Receives what a user would otherwise take for a fault; `kind` is "note" or "warning". Else standard error does.
  std::function<void(std::string_view kind, std::string_view text)> advise;
  runtime::RuntimeOptions runtime;
};

/// -t/--threads, --isa, --kv-memory, --kv-type and --packed-cache. The command adds MODEL and -c/--context itself,
/// where they have its own meaning.
void AddModelFlags(CLI::App& command, ModelFlags& flags);

/// What the flags ask for: the model found, sizes read, progress on a terminal. Errors: those of ResolveModel and
/// ParseByteSize.
absl::StatusOr<runtime::RuntimeOptions> ResolveOptions(const ModelFlags& flags);

/// Finds and loads the model, with progress on a terminal. Errors: those of ResolveModel, ParseByteSize and
/// runtime::Start.
absl::StatusOr<std::unique_ptr<runtime::Runtime>> StartRuntime(const ModelFlags& flags);

/// "packed from the model file", "from the packed cache" or "used where they lie in the packed cache".
std::string_view DescribeSource(exec::WeightSource source);

/// The content of a file, or of standard input for "-". Errors: those of reading, with the path; InvalidArgument for
/// more than 1 GiB.
absl::StatusOr<std::string> ReadText(const std::string& path);

/// Sends what was printed on its way. Errors: DataLoss when standard output did not take all of it.
absl::Status FlushOutput();

/// Prints "kvist COMMAND: message" to standard error. @return  the exit code: 130 after an interrupt, else 1.
int Report(const char* command, const absl::Status& status);

}  // namespace kvist::cli
