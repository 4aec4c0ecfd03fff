#pragma once

/// @file
/// Upkeep of the folder of packed weights: names, room, what is left behind. Other processes may do the same at the
/// same time. Plain functions. Non-goals: what the files hold (packed_cache.h).

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace kvist::exec {

/// One file for each model: "NAME-HASH.vN.packed", with the model file's own name, a hash of its path and the version
/// of the format.
/// @param model_path  absolute, without links.
std::string PackedFileName(const std::string& folder, const std::string& model_path);

/// Makes the folder, readable by this user only. Errors: those of the file system, with the path.
absl::Status PrepareFolder(const std::string& folder);

/// Makes room for a file of `bytes` at `path`: removes damaged files and those of models that are gone, then, until all
/// files together stay within `bytes_max`, those that have been unused for the longest time.
/// Errors: ResourceExhausted when `bytes` are more than `bytes_max` or more than half of what is free on the disk.
absl::Status MakeRoom(const std::string& folder, const std::string& path, uint64_t bytes, uint64_t bytes_max);

/// Notes that a file was used just now.
void MarkUsed(const std::string& path);

}  // namespace kvist::exec
