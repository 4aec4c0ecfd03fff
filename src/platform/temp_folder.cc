#include "platform/temp_folder.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

namespace kvist {

TempFolder::TempFolder(TempFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}

TempFolder& TempFolder::operator=(TempFolder&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

absl::StatusOr<TempFolder> TempFolder::Create(const std::string& parent) {
  std::string path = parent + "/.kvist-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return absl::ErrnoToStatus(errno, path);
  return TempFolder(std::move(path));
}

}  // namespace kvist
