#pragma once

/// @file
/// A Disk on a folder of the file system: io_uring where the system allows it, else a few threads; past the page cache
/// (O_DIRECT) where the file system can, else through it. Which of these it became says report(). Threads: one owner.

#include <memory>
#include <string>

#include "platform/disk.h"

namespace kvist {

enum class DiskEngine : uint8_t {
  kBest,  ///< io_uring where it is allowed.
  kUring,
  kThreads,
};

struct RealDiskOptions {
  bool create = false;  ///< The folder, with mode 0700; else it exists.
  bool direct = true;   ///< Past the page cache where possible.
  DiskEngine engine = DiskEngine::kBest;
  uint32_t depth_max = 64;  ///< Requests that the drive gets at once; others wait their turn.
};

/// Errors: NotFound: no such folder; PermissionDenied: others than its owner may write into it (who can do that can put
/// anything into the files); Unavailable: kUring and the system does not allow it; those of the file system.
absl::StatusOr<std::unique_ptr<Disk>> OpenRealDisk(const std::string& folder, const RealDiskOptions& options = {});

}  // namespace kvist
