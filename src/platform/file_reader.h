#pragma once

/// @file
/// Reads an open file at any offset from many threads at once, through the page cache or past it. Reading past it takes
/// a cold file as fast as the disk gives it when several reads are under way. Non-goals: writing, asynchronous calls: a
/// thread that waits for the disk leaves its core to others.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "platform/anonymous_memory.h"
#include "platform/direct_io.h"
#include "platform/mapped_file.h"

namespace kvist {

/// Page-aligned memory that grows. One thread.
class ReadBuffer {
 public:
  /// At least `bytes`; what was there is lost. Errors: ResourceExhausted.
  absl::StatusOr<std::byte*> Reserve(size_t bytes);

 private:
  AnonymousMemory memory_;
};

/// Movable. Threads: any may read.
class FileReader {
 public:
  enum class Mode : uint8_t {
    kBuffered,  ///< Leaves what was read in the page cache.
    kDirect,    ///< Past the page cache; a file system that cannot do that is read as with kBuffered.
  };

  /// Another way to the file that is mapped, whatever its name leads to by now.
  /// @param label  for messages
  static absl::StatusOr<FileReader> Open(const MappedFile& file, std::string label, Mode mode);
  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&& other) noexcept;
  ~FileReader();

  /// Fills `out` from `offset` on, up to the file's end. REQUIRES: offset, address and size of `out` are multiples of
  /// kDirectAlignment. Errors: DataLoss when the file has fewer than `needed` bytes there; those of reading. With the
  /// place.
  absl::Status ReadAligned(uint64_t offset, std::span<std::byte> out, uint64_t needed) const;

  /// Any part of the file, in `buffer`. Errors: as ReadAligned; ResourceExhausted.
  absl::StatusOr<std::span<const std::byte>> Read(uint64_t offset, uint64_t bytes, ReadBuffer& buffer) const;

 private:
  FileReader(int fd, std::string label) : fd_(fd), label_(std::move(label)) {}

  int fd_ = -1;
  std::string label_;
};

}  // namespace kvist
