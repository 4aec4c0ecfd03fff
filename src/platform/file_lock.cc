#include "platform/file_lock.h"

#include <sys/file.h>

#include <cerrno>

namespace kvist {

bool TryLockFile(int fd) {
  return ::flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

}  // namespace kvist
