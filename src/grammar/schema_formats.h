#pragma once

/// @file
/// Strings of JSON with a pattern or a named format. Pure; any thread.

#include <string_view>

#include "absl/status/statusor.h"
#include "grammar/expression.h"

namespace kvist::grammar {

/// A string that `pattern` finds. Errors: those of ParseRegex.
absl::StatusOr<Node> PatternNode(std::string_view pattern);

/// A string of the format: date, time, date-time (RFC 3339), uuid, ipv4, email (a simple form). Errors: InvalidArgument
/// for others.
absl::StatusOr<Node> FormatNode(std::string_view format);

}  // namespace kvist::grammar
