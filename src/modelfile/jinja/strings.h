#pragma once

/// @file
/// Algorithms of Python's str that filters and methods share. Threads: that of the runtime.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "modelfile/jinja/runtime.h"

namespace kvist::jinja {

/// Changing case and looking up classes is slow work: a step pays for this many bytes.
inline constexpr uint64_t kCaseBytesPerStep = 8;

/// str.replace: at most `count` times, all when negative. An empty `old` matches between all code points.
absl::StatusOr<std::string> Replace(Runtime& runtime, std::string_view text, std::string_view old,
                                    std::string_view replacement, Int count);

/// str.split and str.rsplit. `separator` null: at runs of white space, no empty parts. `splits_max` < 0: no bound.
/// REQUIRES: *separator is not empty.
absl::StatusOr<std::vector<std::string_view>> Split(Runtime& runtime, std::string_view text,
                                                    const std::string_view* separator, Int splits_max, bool from_right);

/// str.splitlines.
absl::StatusOr<std::vector<std::string_view>> SplitLines(Runtime& runtime, std::string_view text, bool keep_ends);

enum class Alignment : uint8_t { kLeft, kRight, kCenter };
/// str.ljust, rjust and center. `width` in code points, `fill` one of them.
absl::StatusOr<std::string> Pad(Runtime& runtime, std::string_view text, Int width, std::string_view fill,
                                Alignment alignment);

/// The parts of a short text between `separator`s, empty ones included.
std::vector<std::string_view> SplitAt(std::string_view text, char separator);

/// Strings as list of values, each as safe as `safe` says.
absl::StatusOr<Value> ListOfText(Runtime& runtime, const std::vector<std::string_view>& parts, bool safe);

/// int(text, base); nullopt when it is no number. Error: too large.
absl::StatusOr<std::optional<Int>> ParseInt(std::string_view text, Int base);
/// float(text); nullopt when it is no number.
std::optional<double> ParseFloat(std::string_view text);

}  // namespace kvist::jinja
