#include "platform/executable.h"

#include <filesystem>
#include <system_error>

namespace kvist {

std::string ExecutablePath() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::string() : path.string();
}

std::string ExecutableFolder() {
  return std::filesystem::path(ExecutablePath()).parent_path().string();
}

}  // namespace kvist
