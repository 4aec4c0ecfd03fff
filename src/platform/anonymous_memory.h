#pragma once

/// @file
/// Zeroed memory straight from the system, for arenas and packed weights: page aligned, huge pages where the system
/// grants them, handed back as a whole.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace kvist {

/// Owns one mapping. Movable. Threads: any.
class AnonymousMemory {
 public:
  AnonymousMemory() = default;
  AnonymousMemory(AnonymousMemory&& other) noexcept;
  AnonymousMemory& operator=(AnonymousMemory&& other) noexcept;
  ~AnonymousMemory();

  /// Pages are taken when first touched. Errors: ResourceExhausted.
  static absl::StatusOr<AnonymousMemory> Map(size_t bytes);

  /// Takes the pages of [begin, begin + bytes) now; what is in them stays. Reading from a drive into pages that are
  /// not there yet is several times slower. Beside others that use the memory.
  void Populate(size_t begin, size_t bytes) const;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Memory that new pages can still be taken from without swapping: the system's estimate, and what the limits of the
/// control groups around this process leave, where that is less. The page cache counts as free. Bytes; 0 when unknown.
size_t AvailableMemoryBytes();

/// What the memory limit of one control group (version 2) leaves; nullopt when it has none.
/// @param folder  of the group, as /sys/fs/cgroup/NAME
std::optional<uint64_t> ControlGroupBytesLeft(const std::string& folder);

}  // namespace kvist
