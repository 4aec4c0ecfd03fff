#include "platform/private_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/status.h"

namespace kvist {

absl::Status MakePrivateFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return absl::ErrnoToStatus(errno, Cat(path, ": cannot be opened"));
  close(file);
  return absl::OkStatus();
}

}  // namespace kvist
