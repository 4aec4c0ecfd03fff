#pragma once

/// @file
/// The files of one folder, read and written in batches that complete by polling: what a store on a drive is built on.
/// An interface, so that tests put a simulated drive with faults in its place. Reads and writes go past the page cache
/// where the file system allows it; then offsets and lengths are multiples of kDirectAlignment. Short operations on
/// names and sizes (open, truncate, rename) block. Threads: one owner. Non-goals: caching, retries, knowing what is in
/// the files.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.h"
#include "platform/direct_io.h"

namespace kvist {

/// Addresses of memory that is read into or written from directly are multiples of this.
inline constexpr uint64_t kDiskAddressAlignment = 512;

/// An open file of a Disk.
using DiskFile = Strong<struct DiskFileTag, uint32_t>;

/// A piece of memory. Written from, or read into.
struct DiskBuffer {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

/// Pieces of one request at most.
inline constexpr size_t kDiskBuffersMax = 1024;

struct DiskRequest {
  enum class Kind : uint8_t { kRead, kWrite, kSync };
  Kind kind = Kind::kRead;
  DiskFile file;
  uint64_t offset = 0;
  std::span<const DiskBuffer> buffers;  ///< Looked at in Submit alone; the memory itself is used until completion.
  uint64_t tag = 0;                     ///< Comes back.
};

/// Completions come in any order.
struct DiskCompletion {
  uint64_t tag = 0;
  uint64_t bytes = 0;   ///< Fewer than asked for only where a read met the file's end, or with an error.
  absl::Status status;  ///< ResourceExhausted: no room on the drive. Anything else: the drive or file system failed.
};

enum class DiskOpen : uint8_t {
  kRead,
  kWrite,   ///< And read; exists.
  kCreate,  ///< And read and write; does not exist yet. Mode 0600.
};

/// How a Disk does its work, for people and for tests.
struct DiskReport {
  std::string engine;   ///< "io_uring", "threads"; "simulated".
  bool direct = false;  ///< Files opened so far go past the page cache.
};

class Disk {
 public:
  virtual ~Disk() = default;

  virtual DiskReport report() const = 0;

  /// Errors: NotFound, AlreadyExists, else those of the file system, with the name.
  virtual absl::StatusOr<DiskFile> Open(const std::string& name, DiskOpen mode) = 0;
  /// REQUIRES: nothing is under way in it.
  virtual void Close(DiskFile file) = 0;
  virtual absl::StatusOr<uint64_t> Size(DiskFile file) = 0;
  virtual absl::Status Truncate(DiskFile file, uint64_t bytes) = 0;
  /// The range reads as zeros afterwards and its old bytes are in the file no more. Gives room back where the file
  /// system can. REQUIRES: multiples of kDirectAlignment; inside the file.
  virtual absl::Status Erase(DiskFile file, uint64_t offset, uint64_t bytes) = 0;
  /// Replaces `to`.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Unlink(const std::string& name) = 0;
  /// Names of the folder's plain files, sorted.
  virtual absl::StatusOr<std::vector<std::string>> List() = 0;
  /// Names of new, renamed and removed files survive a crash from now on.
  virtual absl::Status SyncFolder() = 0;
  /// Takes the lock file (made if need be) for this object, until it ends. Errors: Unavailable: another process (or
  /// another Disk) has it.
  virtual absl::Status Lock(const std::string& name) = 0;
  /// Whether another process or Disk holds the lock now.
  virtual bool IsLocked(const std::string& name) = 0;
  /// That may still be written; UINT64_MAX when unknown.
  virtual uint64_t FreeBytes() = 0;
  /// Whether the folder still stands under the name it was opened by. Errors: NotFound.
  virtual absl::Status CheckFolder() = 0;

  /// Takes requests; none blocks. Those with an error complete as the others do. Requests of one batch may overtake
  /// each other; kSync covers what was complete when it was submitted.
  virtual void Submit(std::span<const DiskRequest> requests) = 0;
  /// Appends what has completed. @param wait  until something has, if anything is under way.
  virtual void Poll(std::vector<DiskCompletion>& out, bool wait) = 0;
  virtual size_t in_flight() const = 0;
};

/// One read that is waited for. REQUIRES: nothing else is under way. @return bytes read: fewer at the file's end.
absl::StatusOr<uint64_t> ReadNow(Disk& disk, DiskFile file, uint64_t offset, DiskBuffer into);
/// As ReadNow.
absl::Status WriteNow(Disk& disk, DiskFile file, uint64_t offset, DiskBuffer from);
absl::Status SyncNow(Disk& disk, DiskFile file);

/// Memory for direct reads and writes; contents are lost when it grows. Movable.
class DiskMemory {
 public:
  DiskMemory() = default;
  explicit DiskMemory(size_t bytes);

  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<std::byte> span() const { return {data(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

}  // namespace kvist
