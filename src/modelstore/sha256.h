#pragma once

/// @file
/// SHA-256 as lower-case hexadecimal text. Source: FIPS 180-4, by OpenSSL.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace kvist::modelstore {

/// 64 lower-case hexadecimal digits. Any thread.
std::string Sha256OfText(std::string_view text);

/// Of a file's content. `progress` is told the bytes read so far and may end it by returning false (Cancelled).
/// Errors: those of opening and reading, with the path.
absl::StatusOr<std::string> Sha256OfFile(const std::string& path, const std::function<bool(uint64_t)>& progress = {});

/// `text` has the form of a SHA-256 in hexadecimal.
bool IsSha256(std::string_view text);

}  // namespace kvist::modelstore
