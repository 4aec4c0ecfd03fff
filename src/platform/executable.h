#pragma once

/// @file
/// Where this program lies. Any thread.

#include <string>

namespace kvist {

/// The running binary, symbolic links resolved; empty when the system does not tell.
std::string ExecutablePath();

/// Folder of the running binary, symbolic links resolved; empty when the system does not tell.
std::string ExecutableFolder();

}  // namespace kvist
