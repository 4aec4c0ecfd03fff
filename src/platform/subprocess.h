#pragma once

/// @file
/// Runs another program and waits for it. No shell is involved. One thread.

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kvist {

/// Runs argv[0], looked up in PATH, with these arguments. It reads nothing (empty input) and what it prints goes to
/// standard error, or, from its standard output, into a new file at `output`. `keep_going` is asked several times a
/// second; on false the program is told to end (SIGTERM, then SIGKILL) and the answer is Cancelled.
/// @return  its exit code; 128 + N when signal N ended it. Errors: NotFound or PermissionDenied when it cannot be
/// started or the file not made.
absl::StatusOr<int> RunProgram(const std::vector<std::string>& argv, const std::function<bool()>& keep_going,
                               const std::string& output = "");

}  // namespace kvist
