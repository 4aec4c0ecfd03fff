#pragma once

/// @file
/// Which file a command means by MODEL. Reads the environment; any thread.

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "modelfile/gguf.h"

namespace kvist::cli {

/// Known name of the model that is used when none is given and it was fetched.
inline constexpr std::string_view kDefaultModel = "smollm2-135m";

/// Path of the model file that `given` names: an existing path as it is; a known name, hf:OWNER/REPO/FILE or URL its
/// file in the store. When empty: $KVIST_MODEL (by the same rules), else smollm2-135m when it was fetched, else the
/// small model that comes with kvist. Errors: NotFound with what to do about it.
absl::StatusOr<std::string> ResolveModel(std::string_view given);

/// Whether this is the small model that comes with kvist, whatever the file is called.
bool IsShippedModel(const GgufFile& file);

}  // namespace kvist::cli
