#include "platform/subprocess.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "base/check.h"
#include "base/status.h"

namespace kvist {
namespace {

constexpr std::chrono::milliseconds kPollEvery(20);
constexpr std::chrono::seconds kGraceAfterTerm(5);

absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& argv, const std::string& output) {
  std::vector<char*> arguments;
  arguments.reserve(argv.size() + 1);
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (output.empty()) {
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  }
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return absl::ErrnoToStatus(error, argv[0]);
  return pid;
}

}  // namespace

absl::StatusOr<int> RunProgram(const std::vector<std::string>& argv, const std::function<bool()>& keep_going,
                               const std::string& output) {
  KVIST_CHECK(!argv.empty());
  KVIST_ASSIGN_OR_RETURN(const pid_t pid, Spawn(argv, output));
  using Clock = std::chrono::steady_clock;
  bool told_to_end = false;
  Clock::time_point kill_at = Clock::time_point::max();
  int state = 0;
  while (true) {
    const pid_t ended = ::waitpid(pid, &state, WNOHANG);
    if (ended == pid) break;
    if (ended < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, argv[0]);
    if (!told_to_end && !keep_going()) {
      told_to_end = true;
      kill_at = Clock::now() + kGraceAfterTerm;
      ::kill(pid, SIGTERM);
    }
    if (Clock::now() >= kill_at) {
      kill_at = Clock::time_point::max();
      ::kill(pid, SIGKILL);
    }
    std::this_thread::sleep_for(kPollEvery);
  }
  if (told_to_end) return absl::CancelledError(Cat(argv[0], ": interrupted"));
  return WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state);
}

}  // namespace kvist
