#pragma once

/// @file
/// Zeroed memory straight from the system, for arenas and packed weights: page aligned, huge pages where the system
/// grants them, handed back as a whole.

#include <cstddef>

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

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Memory that new pages can still be taken from without swapping: the system's estimate, and the control group's limit
/// where that is lower. Bytes; 0 when unknown.
size_t AvailableMemoryBytes();

}  // namespace kvist
