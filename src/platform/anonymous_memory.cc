#include "platform/anonymous_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"

namespace kvist {
namespace {

std::optional<uint64_t> ReadNumber(const char* path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // Absent, or "max".
}

uint64_t MemAvailable() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  uint64_t kib = 0;
  while (file >> key >> kib) {
    std::getline(file, unit);
    if (key == "MemAvailable:") return kib * 1024;
  }
  return 0;
}

}  // namespace

AnonymousMemory::AnonymousMemory(AnonymousMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

AnonymousMemory& AnonymousMemory::operator=(AnonymousMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

AnonymousMemory::~AnonymousMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

absl::StatusOr<AnonymousMemory> AnonymousMemory::Map(size_t bytes) {
  AnonymousMemory memory;
  if (bytes == 0) return memory;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return absl::ResourceExhaustedError(Cat("cannot map ", bytes, " bytes of memory"));
  ::madvise(data, bytes, MADV_HUGEPAGE);  // A wish; small pages work as well.
  memory.data_ = static_cast<std::byte*>(data);
  memory.size_ = bytes;
  return memory;
}

size_t AvailableMemoryBytes() {
  uint64_t available = MemAvailable();
  std::optional<uint64_t> limit = ReadNumber("/sys/fs/cgroup/memory.max");
  std::optional<uint64_t> used = ReadNumber("/sys/fs/cgroup/memory.current");
  if (limit && used) {
    uint64_t left = *limit > *used ? *limit - *used : 0;
    available = available == 0 ? left : std::min(available, left);
  }
  return available;
}

}  // namespace kvist
