#pragma once

/// @file
/// Where fetched models lie: one folder of the user, a name for every file in it. Any thread. Non-goals: fetching
/// (pull.h).

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace kvist::modelstore {

/// $KVIST_MODELS, else $XDG_DATA_HOME/kvist/models, else ~/.local/share/kvist/models. It need not exist.
/// Errors: FailedPrecondition when none of these variables is set.
absl::StatusOr<std::string> StoreFolder();

/// What a user may ask for by name.
enum class SourceKind { kKnown, kHub, kUrl };

/// A name, taken apart.
struct Source {
  SourceKind kind = SourceKind::kUrl;
  std::string url;            ///< Of the file; empty for kKnown.
  std::string relative_path;  ///< Inside the store; '/' separated, never leaves it. Different sources never share one.
};

/// "smollm2-135m", "hf:OWNER/REPO/FILE" (FILE may lie in folders) or an http or https URL.
/// @param hub  base URL of the model hub, "https://huggingface.co" or what HF_ENDPOINT says.
/// Errors: InvalidArgument saying which part of the name is wrong; NotFound for a word that is no known model.
absl::StatusOr<Source> ParseSource(std::string_view name, std::string_view hub);

/// `name` has a form that only ParseSource understands ("hf:...", "https://..."), so it is no file's path.
bool IsRemoteName(std::string_view name);

/// $HF_ENDPOINT without a slash at its end, else the public hub.
std::string HubEndpoint();

}  // namespace kvist::modelstore
