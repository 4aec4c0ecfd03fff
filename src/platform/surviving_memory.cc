#include "platform/surviving_memory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/status.h"

namespace kvist {
namespace {

absl::Status ErrorOf(int error, const std::string& path, const char* what) {
  return absl::ErrnoToStatus(error, Cat(path, ": ", what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SurvivingMemory>> SurvivingMemory::Open(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return ErrorOf(errno, path, "cannot be opened");
  std::unique_ptr<SurvivingMemory> memory(new SurvivingMemory(path, file));
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return absl::FailedPreconditionError(Cat(path, ": in use by another process"));
    return ErrorOf(errno, path, "cannot be locked");
  }
  struct stat facts {};
  if (fstat(file, &facts) != 0) return ErrorOf(errno, path, "cannot be read");
  if (!S_ISREG(facts.st_mode)) return absl::InvalidArgumentError(Cat(path, ": is no file"));
  KVIST_RETURN_IF_ERROR(memory->Map(static_cast<size_t>(facts.st_size)));
  return memory;
}

absl::Status SurvivingMemory::Map(size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (data == MAP_FAILED) return ErrorOf(errno, path_, "cannot be mapped");
  data_ = static_cast<std::byte*>(data);
  size_ = bytes;
  return absl::OkStatus();
}

void SurvivingMemory::Unmap() {
  if (data_ != nullptr) munmap(data_, size_);
  data_ = nullptr;
  size_ = 0;
}

absl::Status SurvivingMemory::Reset(size_t bytes) {
  Unmap();
  if (ftruncate(file_, 0) != 0) return ErrorOf(errno, path_, "cannot be emptied");
  // Else a full disk would only show when the memory is written to, as a signal.
  if (const int error = posix_fallocate(file_, 0, static_cast<off_t>(bytes)); error != 0) {
    return ErrorOf(error, path_, "cannot be made larger");
  }
  return Map(bytes);
}

SurvivingMemory::~SurvivingMemory() {
  Unmap();
  close(file_);
}

}  // namespace kvist
