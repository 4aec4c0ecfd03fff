#pragma once

/// @file
/// How fast stored KV blocks come back from a drive, beside what the drive itself gives in the same run: a store is
/// filled, opened anew and read past the page cache. Threads: one. Non-goals: what the engine makes of it.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace kvist::lab {

struct StoreBenchOptions {
  uint64_t bytes = uint64_t{2} << 30;          ///< Of payloads.
  uint64_t block_bytes = uint64_t{512} << 10;  ///< 16 tokens of a model of a billion parameters.
  uint32_t run_blocks = 512;                   ///< Read at once: a text of 8,192 tokens.
  uint64_t group_bytes = uint64_t{32} << 10;   ///< For reading group by group: one layer.
  uint32_t rounds = 5;
  bool keep = false;  ///< The store stays, in `bench` of the folder; what was there is gone.
};

struct StoreBenchResult {
  std::string engine;  ///< DiskReport
  bool direct = false;
  uint64_t drive_request_bytes = 0;     ///< With which the drive alone is fastest.
  uint32_t drive_depth = 0;             ///< As well.
  double drive_read_bytes_per_s = 0;    ///< Reads of the same files with that, before and after the store's; median.
  double store_read_bytes_per_s = 0;    ///< Of payloads; median.
  double share = 0;                     ///< Of the drive's.
  double cores = 0;                     ///< Processor time by time, while the store reads; median.
  double grouped_read_bytes_per_s = 0;  ///< Group by group; median.
  double first_group_ms = 0;            ///< Until every block of a run has its first group; median.
  double write_bytes_per_s = 0;         ///< Of payloads, until the last is sealed.
  double open_ms = 0;                   ///< Finding all blocks.
  uint64_t blocks = 0, stored_bytes = 0, index_bytes = 0;
};

/// @param folder  exists; a folder is made in it and removed. Errors: those of the drive; DataLoss when a block that
/// was written is not there.
absl::StatusOr<StoreBenchResult> BenchStore(const std::string& folder, const StoreBenchOptions& options);

}  // namespace kvist::lab
