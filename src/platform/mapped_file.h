#pragma once

/// @file
/// Read-only memory map of a whole file, which stays open. The file must not shrink while it is mapped: reading past
/// its new end is a SIGBUS. Replacing it by rename is safe. Non-goals: writing, parts of files, reading without the map
/// (file_reader.h).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace kvist {

/// Tells one content of a file from the next, as far as the file system keeps track: whoever writes to a file through
/// the system changes its stamp, unless within the same tick of the file system's clock.
struct FileStamp {
  uint64_t bytes = 0;
  int64_t modified_ns = 0;  ///< Since 1970. A program may set it back.
  int64_t changed_ns = 0;   ///< Content, name or rights; only the system sets it.
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

/// Owns one mapping and its file. Movable. Threads: any may read; the bytes are shared with the page cache.
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

  /// As the file is now. Errors: those of the file system.
  absl::StatusOr<FileStamp> Stamp() const;

  /// About how much of the file is in the page cache: 0..1, from a sample. 1 when the system does not say.
  double CachedShare() const;

  /// Of the open file, for file_reader.h; -1 when there is none.
  int fd() const { return fd_; }

 private:
  std::span<const std::byte> bytes_;
  int fd_ = -1;
};

}  // namespace kvist
