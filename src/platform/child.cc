#include "platform/child.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

namespace kvist {
namespace {

constexpr size_t kErrorsMax = 4096;

void WriteAll(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno != EINTR) return;
    if (n > 0) done += static_cast<size_t>(n);
  }
}

/// @return false at the end.
bool ReadSome(int fd, std::string& out) {
  std::array<char, 65536> buffer;
  const ssize_t n = read(fd, buffer.data(), buffer.size());
  if (n > 0) out.append(buffer.data(), static_cast<size_t>(n));
  return n > 0 || (n < 0 && errno == EINTR);
}

/// Both at once: a full pipe stops who writes into it.
void ReadBoth(int result_fd, int errors_fd, ChildOutcome& outcome) {
  std::array<pollfd, 2> open = {pollfd{result_fd, POLLIN, 0}, pollfd{errors_fd, POLLIN, 0}};
  while (open[0].fd >= 0 || open[1].fd >= 0) {
    if (poll(open.data(), open.size(), -1) < 0 && errno != EINTR) return;
    if (open[0].fd >= 0 && open[0].revents != 0 && !ReadSome(result_fd, outcome.result)) open[0].fd = -1;
    if (open[1].fd >= 0 && open[1].revents != 0 && !ReadSome(errors_fd, outcome.errors)) open[1].fd = -1;
    if (outcome.errors.size() > 2 * kErrorsMax) outcome.errors.erase(0, outcome.errors.size() - kErrorsMax);
  }
}

}  // namespace

absl::StatusOr<ChildOutcome> RunInChild(const std::function<std::string()>& function, unsigned seconds_max) {
  int result[2], errors[2];
  if (pipe(result) != 0) return absl::ErrnoToStatus(errno, "pipe");
  if (pipe(errors) != 0) {
    const int error = errno;
    close(result[0]);
    close(result[1]);
    return absl::ErrnoToStatus(error, "pipe");
  }
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(errors[1], STDERR_FILENO);
    alarm(seconds_max);
    WriteAll(result[1], function());
    _exit(0);
  }
  const int error = errno;
  close(result[1]);
  close(errors[1]);
  ChildOutcome outcome;
  if (child > 0) ReadBoth(result[0], errors[0], outcome);
  close(result[0]);
  close(errors[0]);
  if (child < 0) return absl::ErrnoToStatus(error, "fork");
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  outcome.returned = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  outcome.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (outcome.errors.size() > kErrorsMax) outcome.errors.erase(0, outcome.errors.size() - kErrorsMax);
  return outcome;
}

}  // namespace kvist
