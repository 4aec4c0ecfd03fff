#pragma once

/// @file
/// What claims measured when they were last recorded: results.jsonl, one object a line, with the commit and the seed.
/// Written by `kvist claims --record` and never by hand. One thread.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lab/claim_run.h"

namespace kvist::lab {

struct ClaimRecord {
  ClaimResult result;
  std::string commit;
  uint64_t seed = 0;
};

/// As one JSON object, the fields of `kvist claims --json`.
std::string ClaimJson(const ClaimRecord& record);

/// Empty where there is no file. Errors: InvalidArgument naming file and line.
absl::StatusOr<std::vector<ClaimRecord>> ReadClaimRecords(const std::string& path);

/// What is recorded after these results: those of claims that were not run, for want of an input, stay as they were;
/// claims that no file names any more go. In order of `files`.
std::vector<ClaimRecord> MergeClaimRecords(const std::vector<ClaimFile>& files, const std::vector<ClaimRecord>& before,
                                           const std::vector<ClaimRecord>& now);

/// Replaces the file at once. Errors: of the file system.
absl::Status WriteClaimRecords(const std::string& path, const std::vector<ClaimRecord>& records);

/// Claims that were met when recorded and are short now.
std::vector<ClaimResult> BrokenClaims(const std::vector<ClaimRecord>& before, const std::vector<ClaimResult>& now);

}  // namespace kvist::lab
