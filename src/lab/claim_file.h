#pragma once

/// @file
/// claims/ID/claim.toml: what a source claims, the runs that measure it here, and what counts as met. Pure but for
/// reading the file; any thread. Non-goals: running (claim_run.h).
///
///   title = "Fair chunked prefill"
///   seed = 1                             # given to runs as ${seed}
///   [[run]]
///   name = "mixed"
///   kvist = ["schedule", "--policy", "fcfs", "fair", "--json", ...]    # this program, or
///   program = ["python3", "${claim}/waste.py", "${data}/trace.jsonl"]  # another, or
///   test = "sched_test"                                                # tests of the build,
///   filter = "FairPolicy.*"                                            # of this name
///   seconds = 5                                                        # about; what takes longer than 20 is not quick
///   [[claim]]
///   name = "mean"                        # of the record; stays
///   text = "mean end to end at least 10 % below first come, first served"
///   conditions = "8 places near capacity, virtual time"
///   runs = ["mixed"]                     # absent: all
///   measured = "100 * (1 - ...)"         # claim_expression.h, over rows that carry "run"
///   unit = "%"
///   accept = ">= 10"
///   [[claim]]
///   name = "throughput"
///   text = "2.6 times the capacity within latency targets"
///   missing = "Mistral-7B on one A100"   # what is not comparable, and what would supply it
///   supply = "devices/a100.toml"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace kvist::lab {

struct ClaimRun {
  std::string name;
  std::vector<std::string> kvist;    ///< Arguments of this program,
  std::vector<std::string> program;  ///< or another with its arguments,
  std::string test, filter;          ///< or a test binary of the build and a GoogleTest filter.
  double seconds = 10;
};

struct Claim {
  std::string name, text, conditions;
  std::vector<std::string> runs;
  std::string measured, unit, accept;  ///< All three, or
  std::string missing, supply;         ///< these.
};

struct ClaimFile {
  std::string id;      ///< Name of the folder.
  std::string folder;  ///< With the folder's path.
  std::string title;
  uint64_t seed = 1;
  std::vector<ClaimRun> runs;
  std::vector<Claim> claims;
};

/// Bound of a claim: `figure` must be at least (">= 10") or at most ("<= 1.5") this.
struct ClaimBound {
  bool at_least = true;
  double value = 0;
  bool Holds(double figure) const { return at_least ? figure >= value : figure <= value; }
};

/// Errors: InvalidArgument.
absl::StatusOr<ClaimBound> ParseClaimBound(std::string_view text);

/// Errors: InvalidArgument naming the place; NotFound where the folder has no claim.toml.
absl::StatusOr<ClaimFile> ReadClaimFile(const std::string& folder);

struct ClaimFiles {
  std::vector<ClaimFile> files;                           ///< By id.
  std::vector<std::pair<std::string, absl::Status>> bad;  ///< Ids of those that cannot be read, and why.
};

/// Of every folder in `root` with a claim.toml. Errors: NotFound where there is none.
absl::StatusOr<ClaimFiles> ReadClaims(const std::string& root);

}  // namespace kvist::lab
