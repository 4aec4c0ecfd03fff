#pragma once

/// @file
/// Reading which records a segment file holds: from the index at its end, or, where that is missing or wrong, by
/// looking for records page by page. Waits for the drive. Threads: one. Non-goals: payloads.

#include <vector>

#include "kv/tier/store_format.h"
#include "platform/disk.h"

namespace kvist::kv {

struct SegmentContents {
  std::vector<PlacedBlock> blocks;  ///< In order of their places; they do not overlap.
  uint64_t data_end = 0;            ///< Behind the last record.
  uint64_t file_bytes = 0;
  bool sealed = false;         ///< The index was right.
  uint64_t damaged_pages = 0;  ///< Of an unsealed one: pages where no record is, and that hold something.
  uint64_t read_errors = 0;
};

/// A file of which nothing can be read has no records. REQUIRES: nothing else is under way on the disk.
/// @param place  offset 0
SegmentContents ReadSegment(Disk& disk, DiskFile file, const StorePlace& place);

/// Writes an index behind the records, ends the file there and brings it to the drive.
/// REQUIRES: nothing else is under way.
absl::Status WriteSegmentIndex(Disk& disk, DiskFile file, const StorePlace& place, std::span<const PlacedBlock> blocks,
                               uint64_t data_end);

}  // namespace kvist::kv
