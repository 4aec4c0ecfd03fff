#include "platform/disk_calibration.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "base/check.h"
#include "base/clock.h"
#include "base/prng.h"
#include "base/status.h"

namespace kvist {
namespace {

constexpr std::string_view kTitle = "kvist-disk-speed 1";
constexpr const char* kFileName = "calibration.tmp";

/// Passes over the file until it is done or time is up, `depth` requests at a time. @return bytes per second
absl::StatusOr<double> Pass(Disk& disk, DiskFile file, DiskRequest::Kind kind, const DiskSpeed::Row& row,
                            uint64_t file_bytes, double seconds_max, const DiskMemory& memory) {
  const RealClock clock;
  const TimeNs start = clock.Now();
  uint64_t next = 0, done_bytes = 0;
  std::vector<uint32_t> slots(row.depth);
  for (uint32_t i = 0; i < row.depth; ++i) slots[i] = i;
  std::vector<DiskCompletion> done;
  absl::Status failed;
  do {
    const bool go_on = failed.ok() && next < file_bytes && Seconds(clock.Now() - start) < seconds_max;
    while (go_on && !slots.empty() && next < file_bytes) {
      const DiskBuffer buffer{memory.data() + slots.back() * row.block_bytes, row.block_bytes};
      const DiskRequest request{
          .kind = kind, .file = file, .offset = next, .buffers = {&buffer, 1}, .tag = slots.back()};
      disk.Submit({&request, 1});
      slots.pop_back();
      next += row.block_bytes;
    }
    done.clear();
    disk.Poll(done, true);
    for (const DiskCompletion& completion : done) {
      slots.push_back(static_cast<uint32_t>(completion.tag));
      done_bytes += completion.bytes;
      if (!completion.status.ok()) failed = completion.status;
    }
  } while (disk.in_flight() > 0 || (failed.ok() && next < file_bytes && Seconds(clock.Now() - start) < seconds_max));
  if (!failed.ok()) return failed;
  return static_cast<double>(done_bytes) / std::max(Seconds(clock.Now() - start), 1e-9);
}

absl::StatusOr<DiskSpeed> Measure(Disk& disk, DiskFile file, const CalibrationOptions& options) {
  const RealClock clock;
  const TimeNs start = clock.Now();
  const uint64_t block_max = std::ranges::max(options.block_bytes);
  const uint64_t file_bytes = std::max(options.file_bytes / block_max, uint64_t{1}) * block_max;
  DiskMemory memory(std::ranges::max(options.depths) * block_max);
  Prng prng(1);  // Bytes that a drive cannot compress.
  for (size_t i = 0; i < memory.size(); i += 8) {
    const uint64_t word = prng.Next();
    std::memcpy(memory.data() + i, &word, 8);
  }
  const double share = options.seconds_max / static_cast<double>(options.depths.size() * options.block_bytes.size());
  DiskSpeed speed;
  // The first pass writes all of the file, so that each later one reads what was written.
  KVIST_RETURN_IF_ERROR(
      Pass(disk, file, DiskRequest::Kind::kWrite, {.block_bytes = block_max, .depth = 1}, file_bytes, 1e9, memory)
          .status());
  for (const uint64_t block : options.block_bytes) {
    for (const uint32_t depth : options.depths) {
      if (!speed.rows.empty() && Seconds(clock.Now() - start) > options.seconds_max) return speed;
      DiskSpeed::Row row{.block_bytes = block, .depth = depth};
      KVIST_ASSIGN_OR_RETURN(row.write_bytes_per_s,
                             Pass(disk, file, DiskRequest::Kind::kWrite, row, file_bytes, share / 2, memory));
      KVIST_ASSIGN_OR_RETURN(row.read_bytes_per_s,
                             Pass(disk, file, DiskRequest::Kind::kRead, row, file_bytes, share / 2, memory));
      speed.rows.push_back(row);
    }
  }
  return speed;
}

}  // namespace

const DiskSpeed::Row& DiskSpeed::Best() const {
  KVIST_CHECK(!rows.empty());
  const double fastest = std::ranges::max(rows, {}, &Row::read_bytes_per_s).read_bytes_per_s;
  const Row* best = nullptr;
  for (const Row& row : rows) {
    if (row.read_bytes_per_s < 0.95 * fastest) continue;
    if (best == nullptr || row.depth * row.block_bytes < best->depth * best->block_bytes) best = &row;
  }
  return *best;
}

absl::StatusOr<DiskSpeed> CalibrateDisk(Disk& disk, const CalibrationOptions& options) {
  KVIST_CHECK(!options.block_bytes.empty() && !options.depths.empty());
  (void)disk.Unlink(kFileName);  // Left behind by one that was killed.
  KVIST_ASSIGN_OR_RETURN(const DiskFile file, disk.Open(kFileName, DiskOpen::kCreate));
  absl::StatusOr<DiskSpeed> speed = Measure(disk, file, options);
  disk.Close(file);
  KVIST_RETURN_IF_ERROR(disk.Unlink(kFileName));
  return speed;
}

std::string EncodeDiskSpeed(const DiskSpeed& speed) {
  std::string text = Cat(kTitle, "\n");
  for (const DiskSpeed::Row& row : speed.rows) {
    text += Cat(row.block_bytes, " ", row.depth, " ", std::llround(row.read_bytes_per_s), " ",
                std::llround(row.write_bytes_per_s), "\n");
  }
  return text;
}

absl::StatusOr<DiskSpeed> ParseDiskSpeed(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::string line;
  if (!std::getline(lines, line) || line != kTitle) return absl::InvalidArgumentError("line 1: not a drive's speed");
  DiskSpeed speed;
  for (int number = 2; std::getline(lines, line); ++number) {
    std::istringstream fields(line);
    DiskSpeed::Row row;
    std::string more;
    const bool read =
        static_cast<bool>(fields >> row.block_bytes >> row.depth >> row.read_bytes_per_s >> row.write_bytes_per_s) &&
        !(fields >> more);
    if (!read || row.block_bytes == 0 || row.depth == 0 || !std::isfinite(row.read_bytes_per_s) ||
        !std::isfinite(row.write_bytes_per_s)) {
      return absl::InvalidArgumentError(
          Cat("line ", number, ": not block bytes, depth, read and write bytes per second"));
    }
    speed.rows.push_back(row);
  }
  if (speed.rows.empty()) return absl::InvalidArgumentError("line 2: nothing was measured");
  return speed;
}

}  // namespace kvist
