#pragma once

/// @file
/// Runs what measures a claim and says whether it holds. One thread; runs one program after the other, so that times
/// are not disturbed. Non-goals: what is recorded (claim_record.h).

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lab/claim_file.h"

namespace kvist::lab {

enum class ClaimState : uint8_t {
  kMet,
  kShort,          ///< Measured, and outside the bound.
  kNotComparable,  ///< A condition of the source is missing here; `why` names it.
  kNotRun,         ///< An input is missing or a run failed; `why` says which.
};
std::string_view ClaimStateName(ClaimState state);

struct ClaimResult {
  std::string id, name, text, conditions, unit, accept;
  double measured = 0;  ///< Of kMet and kShort.
  ClaimState state = ClaimState::kNotRun;
  std::string why;

  bool IsMeasured() const { return state == ClaimState::kMet || state == ClaimState::kShort; }
};

struct ClaimRunOptions {
  std::string kvist;         ///< Path of this program,
  std::string build_folder;  ///< and of the build's test binaries.
  /// Values of ${name} in arguments: data, models, model. An argument that names another is not run.
  std::map<std::string, std::string> inputs;
  double seconds_max = 1e9;  ///< Runs that say they take longer are left out.
  std::function<bool()> keep_going = [] { return true; };
  std::function<void(const ClaimFile&, const ClaimRun&)> on_run = [](const ClaimFile&, const ClaimRun&) {};
};

/// Result of each claim of the file, in its order. Errors: Cancelled; of making a temporary folder.
absl::StatusOr<std::vector<ClaimResult>> RunClaims(const ClaimFile& file, const ClaimRunOptions& options);

}  // namespace kvist::lab
