#pragma once

/// @file
/// The two ways in which a real Disk has its reads and writes done. Internal to platform/. Threads: one owner.

#include <sys/uio.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/disk.h"

namespace kvist {

/// A request under way.
struct DiskJob {
  DiskRequest::Kind kind = DiskRequest::Kind::kRead;
  DiskFile file;
  int fd = -1;
  uint64_t offset = 0;
  uint64_t tag = 0;
  std::vector<iovec> pieces;
  size_t first = 0;    ///< Pieces before it are done.
  uint64_t done = 0;   ///< Bytes.
  uint64_t total = 0;  ///< Bytes.
  int error = 0;       ///< errno.

  std::span<iovec> rest() { return std::span(pieces).subspan(first); }

  /// What a system call returned: bytes, or -errno. @return whether the job is over; else the rest is to be done again.
  bool Take(int64_t result);
};

class DiskEngineBase {
 public:
  virtual ~DiskEngineBase() = default;
  virtual std::string name() const = 0;
  virtual void Start(std::unique_ptr<DiskJob> job) = 0;
  /// Hands what was started to the system.
  virtual void Flush() = 0;
  virtual void Collect(std::vector<std::unique_ptr<DiskJob>>& done, bool wait) = 0;
};

/// Errors: Unavailable where the system does not allow it.
absl::StatusOr<std::unique_ptr<DiskEngineBase>> MakeUringEngine(uint32_t depth_max);
std::unique_ptr<DiskEngineBase> MakeThreadsEngine(uint32_t threads);

}  // namespace kvist
