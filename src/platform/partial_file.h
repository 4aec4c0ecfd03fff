#pragma once

/// @file
/// A file that grows under a temporary name until it is whole and then takes its final one at once: readers of the
/// final name see all of it or nothing, and what was written survives a crash of the writer. One thread.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace kvist {

/// Who may open the file besides its owner, as far as the user's mask lets them.
enum class FileAccess : uint8_t { kShared, kPrivate };

/// Owns TARGET.part and its lock: no other process has it open through this class.
class PartialFile {
 public:
  PartialFile(PartialFile&& other) noexcept;
  PartialFile& operator=(PartialFile&& other) noexcept;
  ~PartialFile();  ///< Keeps what was written, except an empty file.

  /// Opens or creates TARGET.part and locks it. While another process holds the lock, `wait` is called several times a
  /// second. REQUIRES: the folder exists. Errors: Cancelled when `wait` returns false; those of the file system, with
  /// the path.
  static absl::StatusOr<PartialFile> Open(const std::string& target, const std::function<bool()>& wait,
                                          FileAccess access = FileAccess::kShared);

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }

  /// Forgets everything from `size` on. REQUIRES: size <= size().
  absl::Status Truncate(uint64_t size);

  /// Errors: ResourceExhausted for a full disk or quota, with the path.
  absl::Status Append(std::span<const char> bytes);

  /// Gives the file `bytes` bytes, all zero and all with a place on the disk, and maps them for writing. What is
  /// written there is content as soon as it is written. The map ends with this object. REQUIRES: nothing was appended.
  /// Errors: as Append.
  absl::StatusOr<std::span<std::byte>> AllocateAndMap(uint64_t bytes);

  /// Asks the system to begin writing what was appended, so that a later Publish has less to wait for.
  void BeginWriteback();

  /// Brings the content to the disk and renames it to TARGET. Afterwards only destruction is allowed.
  absl::Status Publish();

  /// Removes TARGET.part. Afterwards only destruction is allowed.
  void Discard();

 private:
  PartialFile(std::string target, int fd, uint64_t size);
  void Close();

  std::string target_, path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  std::span<std::byte> map_;
};

/// Bytes that this user may still write into `folder`; UINT64_MAX when unknown.
uint64_t FreeDiskBytes(const std::string& folder);

}  // namespace kvist
