#include "platform/direct_io.h"

#include <fcntl.h>

namespace kvist {

bool StopDirect(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_DIRECT) != 0 && ::fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

}  // namespace kvist
