#pragma once

/// @file
/// A safe part of regular expressions (ECMA 262, as JSON schemas use them) as an expression over characters: literals,
/// classes, groups, alternatives, repetitions, anchors at the ends. Look-around, back references, word boundaries and
/// properties are refused. Pure; any thread.

#include <functional>
#include <string_view>

#include "absl/status/statusor.h"
#include "grammar/expression.h"

namespace kvist::grammar {

/// How a set of characters is written in the text that is to be matched, e.g. inside a string of JSON.
using CharWriter = std::function<Node(const std::vector<CharRange>&)>;

enum class RegexMatch : uint8_t {
  kFind,   ///< Without anchors the pattern may stand anywhere in the text, as in a search.
  kWhole,  ///< It is the whole text; anchors at its ends say nothing new.
};

/// Texts that `pattern` matches. Errors: InvalidArgument "line L, column C: ...".
absl::StatusOr<Node> ParseRegex(std::string_view pattern, RegexMatch match, const CharWriter& write);

}  // namespace kvist::grammar
