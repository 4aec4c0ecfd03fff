#pragma once

/// @file
/// How fast a drive is: sequential direct reads and writes of a file of random bytes, for sizes of requests and numbers
/// of them under way. Bounded in time and bytes. From this the store takes how it reads, and whoever compares fetching
/// with computing takes the rate. Threads: one. Non-goals: random small reads; drives that slow down after minutes.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/disk.h"

namespace kvist {

struct CalibrationOptions {
  uint64_t file_bytes = uint64_t{256} << 20;  ///< Written for each row at most, and read.
  double seconds_max = 5;                     ///< All together; rows that there is no time for are left out.
  std::vector<uint64_t> block_bytes = {uint64_t{256} << 10, uint64_t{1} << 20, uint64_t{4} << 20};
  std::vector<uint32_t> depths = {1, 4, 16};
};

struct DiskSpeed {
  struct Row {
    uint64_t block_bytes = 0;
    uint32_t depth = 0;  ///< Requests under way.
    double read_bytes_per_s = 0, write_bytes_per_s = 0;
  };
  std::vector<Row> rows;  ///< At least one.

  /// The row of least depth and size that reads within 5 % of the fastest.
  const Row& Best() const;
};

/// Makes and removes a file `calibration.tmp`. Errors: those of the drive, ResourceExhausted where it has no room.
absl::StatusOr<DiskSpeed> CalibrateDisk(Disk& disk, const CalibrationOptions& options = {});

/// A few lines of text, to be kept beside the data.
std::string EncodeDiskSpeed(const DiskSpeed& speed);
/// Errors: InvalidArgument naming the line.
absl::StatusOr<DiskSpeed> ParseDiskSpeed(std::string_view text);

}  // namespace kvist
