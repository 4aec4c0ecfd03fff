#pragma once

/// @file
/// The segment files of a store: their sizes, and a bounded number of them open at a time. Threads: engine thread only.
/// Non-goals: what is in them.

#include <cstdint>
#include <map>
#include <vector>

#include "kv/tier/store_index.h"
#include "platform/disk.h"

namespace kvist::kv {

class SegmentSet {
 public:
  /// @param segment_bytes  that a segment takes until it is sealed.
  SegmentSet(Disk& disk, uint64_t segment_bytes, bool read_only)
      : disk_(disk), segment_bytes_(segment_bytes), read_only_(read_only) {}

  /// A file that is there.
  void Add(SegmentId id, uint64_t file_bytes);
  /// A new one, numbered above all others. Errors: those of the drive.
  absl::StatusOr<SegmentId> Create();
  /// Its file is whole: it never grows again.
  void Seal(SegmentId id, uint64_t file_bytes);
  /// Its name is gone at once, its bytes when nobody uses it any more. Errors: the name could not be
  /// removed; then it stays.
  absl::Status Remove(SegmentId id);

  /// The open file, which stays open until as many Releases. Errors: those of opening.
  absl::StatusOr<DiskFile> Use(SegmentId id);
  void Release(SegmentId id);

  bool Contains(SegmentId id) const {
    const auto it = segments_.find(id);
    return it != segments_.end() && !it->second.removed;
  }
  bool IsSealed(SegmentId id) const { return segments_.at(id).sealed; }
  uint64_t FileBytes(SegmentId id) const { return segments_.at(id).file_bytes; }
  std::vector<SegmentId> All() const;  ///< That are not removed, in order of numbers.
  size_t size() const;
  /// On the drive, with room for those that are being filled.
  uint64_t used_bytes() const { return used_bytes_; }

 private:
  struct Segment {
    uint64_t file_bytes = 0;
    bool sealed = false, removed = false, open = false;
    DiskFile file;
    uint32_t uses = 0;
    uint64_t used_at = 0;
  };
  void CloseIdle(size_t open_max);
  void Close(Segment& segment);

  Disk& disk_;
  const uint64_t segment_bytes_;
  const bool read_only_;
  std::map<SegmentId, Segment> segments_;
  uint64_t used_bytes_ = 0, last_number_ = 0, clock_ = 0;
  size_t open_ = 0;
};

}  // namespace kvist::kv
