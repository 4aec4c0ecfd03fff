#include "cli/model_path.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/status.h"
#include "modelstore/known_models.h"
#include "modelstore/store.h"
#include "platform/executable.h"

namespace kvist::cli {
namespace {

/// The yardstick: as fast as the 8-bit file within noise, and the one whose accuracy is recorded.
constexpr std::string_view kSmallModel = "default-f16.gguf";
constexpr std::string_view kSmallModelTitle = "Default 8M recall model";  // general.name of all its files.

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// The small model beside an installed binary or in the source tree; empty when neither has it.
std::string ShippedModel() {
  const std::string folder = ExecutableFolder();
  if (!folder.empty()) {
    const std::filesystem::path installed =
        std::filesystem::path(folder).parent_path() / "share/kvist/models" / std::string(kSmallModel);
    if (Exists(installed)) return installed;
  }
  const std::string source = Cat(KVIST_SOURCE_DIR "/models/", kSmallModel);
  return Exists(source) ? source : "";
}

absl::StatusOr<std::string> StoredPath(std::string_view name) {
  KVIST_ASSIGN_OR_RETURN(const modelstore::Source source, modelstore::ParseSource(name, modelstore::HubEndpoint()));
  KVIST_ASSIGN_OR_RETURN(const std::string folder, modelstore::StoreFolder());
  return Cat(folder, "/", source.relative_path);
}

absl::StatusOr<std::string> ResolveNamed(std::string_view name) {
  const std::string path(name);
  if (!modelstore::IsRemoteName(name) && Exists(path)) return path;
  if (!modelstore::IsRemoteName(name) && modelstore::FindKnownModel(name) == nullptr) {
    return absl::NotFoundError(Cat(name, ": no such file, and no known model is called that (see kvist pull --list)"));
  }
  KVIST_ASSIGN_OR_RETURN(std::string stored, StoredPath(name));
  if (!Exists(stored)) {
    return absl::NotFoundError(Cat(name, " has not been fetched; kvist pull ", name, " does"));
  }
  return stored;
}

}  // namespace

absl::StatusOr<std::string> ResolveModel(std::string_view given) {
  if (!given.empty()) return ResolveNamed(given);
  if (const char* named = std::getenv("KVIST_MODEL"); named != nullptr && *named != '\0') {
    absl::StatusOr<std::string> path = ResolveNamed(named);
    return path.ok() ? std::move(path) : Annotate(path.status(), "KVIST_MODEL");
  }
  if (absl::StatusOr<std::string> stored = StoredPath(kDefaultModel); stored.ok() && Exists(*stored)) return stored;
  std::string shipped = ShippedModel();
  if (shipped.empty()) {
    return absl::NotFoundError(Cat("no model: name a GGUF file, or fetch one with kvist pull ", kDefaultModel));
  }
  return shipped;
}

bool IsShippedModel(const GgufFile& file) {
  const absl::StatusOr<std::string_view> name = file.GetString("general.name");
  return name.ok() && *name == kSmallModelTitle;
}

}  // namespace kvist::cli
