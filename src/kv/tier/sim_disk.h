#pragma once

/// @file
/// A drive in memory that does what drives do on bad days, by a seed: torn, misdirected and lost writes, flipped bits,
/// short reads, errors, no room, a crash at any operation, completions in any order. The drive outlives the Disks that
/// are opened on it, as a real one outlives processes. Threads: one.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/prng.h"
#include "platform/disk.h"

namespace kvist::kv {

/// Chances, per request.
struct SimFaults {
  double torn_write = 0;         ///< Some of its sectors are written.
  double misdirected_write = 0;  ///< To another place of the file.
  double lost_write = 0;         ///< Nothing is written, and nobody says so.
  double flipped_bit = 0;        ///< In what is written, for good.
  double flipped_read = 0;       ///< In what is read, once.
  double short_read = 0;
  double read_error = 0, write_error = 0, sync_error = 0, name_error = 0;
  uint64_t room_bytes = UINT64_MAX;       ///< Of all files.
  bool room_unknown = false;              ///< Nobody is told how much is left.
  bool folder_removed = false;            ///< Files that are open go on.
  std::optional<uint64_t> crash_after{};  ///< Operations: from then on nothing works.
};

class SimDrive {
 public:
  explicit SimDrive(uint64_t seed) : prng_(seed) {}

  SimFaults faults;
  std::unique_ptr<Disk> Open();

  /// The process is gone; what it had under way is done, or not, or partly.
  /// @param power  and so is the power: what was not synced may be lost, page by page.
  void Crash(bool power);
  bool crashed() const { return crashed_; }
  uint64_t operations() const { return operations_; }

  struct File {
    std::vector<std::byte> data;
    std::map<uint64_t, std::vector<std::byte>> unsynced;  ///< [page] its last synced bytes.
    uint64_t synced_bytes = 0;
  };
  std::map<std::string, std::shared_ptr<File>>& files() { return files_; }
  uint64_t used_bytes() const;
  /// Whether any file has these bytes somewhere.
  bool Holds(std::span<const std::byte> bytes) const;
  /// A byte of some file, changed.
  void FlipSomewhere();

 private:
  friend class SimDisk;
  bool Chance(double p) { return p > 0 && prng_.Uniform() < p; }
  bool Count();
  void Put(File& file, uint64_t offset, std::span<const std::byte> bytes);
  absl::Status Apply(File& file, const DiskRequest& request, std::span<const DiskBuffer> buffers, uint64_t& done);

  Prng prng_;
  std::map<std::string, std::shared_ptr<File>> files_;
  std::map<std::string, const void*> locks_;
  /// Under way when the process went.
  std::vector<std::pair<std::shared_ptr<File>, std::pair<uint64_t, std::vector<std::byte>>>> lingering_;
  bool crashed_ = false;
  uint64_t operations_ = 0;
};

}  // namespace kvist::kv
