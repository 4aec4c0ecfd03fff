#pragma once

/// @file
/// Python's format mini-language for one value: `[[fill]align][sign][#][0][width][,|_][.precision][type]`.
/// Threads: that of the runtime. Non-goal: locale ("n").

#include <string>
#include <string_view>

#include "modelfile/jinja/runtime.h"

namespace kvist::jinja {

/// The fields of a format specification; also what a %-conversion comes down to.
struct FormatSpec {
  std::string fill = " ";  ///< One code point.
  char align = '\0';       ///< '<', '>', '^', '=' or '\0': as the type has it.
  char sign = '\0';        ///< '-', '+', ' ' or '\0': as '-'.
  bool alternate = false;  ///< '#'
  bool zero = false;       ///< '0': numbers without an alignment are padded behind their sign.
  char grouping = '\0';    ///< ',', '_' or '\0'.
  Int width = 0;
  int precision = -1;  ///< -1 = none.
  char type = '\0';
};

/// Precisions beyond this are refused: no text needs them.
inline constexpr int kPrecisionMax = 1000;

absl::StatusOr<FormatSpec> ParseFormatSpec(std::string_view spec);

/// format(value, spec). Errors: a type that the value does not have.
absl::StatusOr<std::string> FormatValue(Runtime& runtime, const Value& value, const FormatSpec& spec);

/// The parts that FormatValue is made of, for the % operator. REQUIRES: spec.type is one of d x X o b, or e E f F g G.
absl::StatusOr<std::string> FormatInt(Runtime& runtime, Int value, const FormatSpec& spec);
absl::StatusOr<std::string> FormatFloat(Runtime& runtime, double value, const FormatSpec& spec);
absl::StatusOr<std::string> FormatText(Runtime& runtime, std::string_view text, const FormatSpec& spec);

}  // namespace kvist::jinja
