#pragma once

/// @file
/// Headers of packed caches for tests and fuzzing: the cases that tests/fuzz/packed_cache/ holds as files, and a check
/// of one image.

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "exec/cpu/packed_cache_format.h"

namespace kvist::exec {

/// A whole small file.
struct PackedCase {
  std::string name;  ///< "ok_..." or "bad_..."
  std::string bytes;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string message;  ///< Part of it.
};
std::vector<PackedCase> PackedCases();

/// Two files, a path, one chunk.
PackedCacheHeader SmallPackedHeader();

/// Gives an image whose header ends inside it the right checksum, so that what the checksum hides is reached.
void SealPackedImage(std::string& image);

/// Parses the header of an image of a whole file. What is accepted must encode to the bytes that it came from.
absl::Status CheckPackedImage(std::string_view image);

}  // namespace kvist::exec
