#pragma once

/// @file
/// Read-only memory map of a whole file. The file must not shrink while it is mapped: reading past its new end is a
/// SIGBUS. Replacing it by rename is safe. Non-goals: writing, parts of files.

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace kvist {

/// Owns one mapping. Movable. Threads: any may read; the bytes are shared with the page cache.
class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  /// Errors: NotFound, PermissionDenied, InvalidArgument (not a regular file), Unavailable (mmap failed).
  /// An empty file maps to an empty span.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace kvist
