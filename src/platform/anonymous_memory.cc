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

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // Absent, or "max".
}

/// "/a/b": this process's control group of version 2; empty for the root.
std::string ControlGroup() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("0::/")) return line == "0::/" ? "" : line.substr(3);
  }
  return "";
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

void AnonymousMemory::Populate(size_t begin, size_t bytes) const {
  ::madvise(data_ + begin, bytes, MADV_POPULATE_WRITE);  // Where the system does not know that, they come one by one.
}

std::optional<uint64_t> ControlGroupBytesLeft(const std::string& folder) {
  const std::optional<uint64_t> limit = ReadNumber(folder + "/memory.max");
  const std::optional<uint64_t> used = ReadNumber(folder + "/memory.current");
  if (!limit || !used) return std::nullopt;
  // What is cached of files counts as used there, but is given back as soon as memory is asked for.
  uint64_t cached = 0;
  std::ifstream stat(folder + "/memory.stat");
  std::string key;
  uint64_t value = 0;
  while (stat >> key >> value) {
    if (key == "active_file" || key == "inactive_file") cached += value;
  }
  const uint64_t taken = *used - std::min(*used, cached);
  return *limit - std::min(*limit, taken);
}

size_t AvailableMemoryBytes() {
  uint64_t available = MemAvailable();
  for (std::string group = ControlGroup();; group.resize(group.rfind('/'))) {
    if (const std::optional<uint64_t> left = ControlGroupBytesLeft("/sys/fs/cgroup" + group)) {
      available = available == 0 ? *left : std::min(available, *left);
      available = std::max<uint64_t>(available, 1);  // 0 is "unknown".
    }
    if (group.empty()) return available;
  }
}

}  // namespace kvist
