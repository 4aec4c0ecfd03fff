#pragma once

/// @file
/// Runs a function in a process of its own, so that an abort, a crash or an endless loop there is a result here.
/// REQUIRES: one thread.

#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace kvist {

/// What became of it.
struct ChildOutcome {
  std::string result;  ///< That the function returned, if it did.
  bool returned = false;
  std::string errors;  ///< The last of what it wrote to standard error.
  int signal = 0;      ///< That ended it; SIGALRM = its time was over. 0 = none.
};

/// @param seconds_max  of real time
/// Errors: those of the system when there can be no process.
absl::StatusOr<ChildOutcome> RunInChild(const std::function<std::string()>& function, unsigned seconds_max);

}  // namespace kvist
