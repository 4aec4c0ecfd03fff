#include "platform/text_file.h"

#include <cerrno>
#include <fstream>
#include <memory>

#include <fcntl.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "base/status.h"

namespace kvist {
namespace {

absl::Status ReadError(const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::string_view(path.data(), path.size()));
}

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t bytes_max) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ReadError(path);
  const absl::Cleanup close_file = [fd] { close(fd); };
  std::string text;
  char buffer[16384];
  while (true) {
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ReadError(path);
    if (count == 0) return text;
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > bytes_max) {
      return absl::InvalidArgumentError(Cat(path, ": larger than ", bytes_max, " bytes"));
    }
  }
}

absl::Status WriteTextFile(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  return file ? absl::OkStatus() : absl::UnavailableError(Cat(path, ": cannot be written"));
}

}  // namespace kvist
