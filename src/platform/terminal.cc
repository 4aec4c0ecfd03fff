#include "platform/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace kvist {

bool StdinIsTerminal() {
  return ::isatty(STDIN_FILENO) != 0;
}
bool StdoutIsTerminal() {
  return ::isatty(STDOUT_FILENO) != 0;
}
bool StderrIsTerminal() {
  return ::isatty(STDERR_FILENO) != 0;
}

unsigned StderrColumns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace kvist
