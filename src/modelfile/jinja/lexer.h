#pragma once

/// @file
/// Splits template source into tokens with jinja2's white-space rules: trim_blocks, lstrip_blocks and `-`/`+` signs on;
/// one newline at the end of the source dropped; line ends become "\n". Threads: any.
/// Non-goals: line statements and other delimiters, which chat templates do not use.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "modelfile/jinja/value.h"

namespace kvist::jinja {

/// Where something stands in the source, both from 1. Columns count bytes.
struct Position {
  uint32_t line = 1;
  uint32_t column = 1;
};

/// InvalidArgument "line L, column C: ...".
template <class... Parts>
absl::Status SyntaxError(Position at, const Parts&... parts) {
  return absl::InvalidArgumentError(Cat("line ", at.line, ", column ", at.column, ": ", parts...));
}

enum class TokenKind : uint8_t {
  kData,  ///< Text between tags.
  kOutputBegin,
  kOutputEnd,  ///< {{ }}
  kBlockBegin,
  kBlockEnd,  ///< {% %}
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,  ///< `text` holds it.
  kEnd,
};

struct Token {
  TokenKind kind;
  Position at;
  std::string text;  ///< Data, name, operator, or the value of a string literal.
  Int integer = 0;
  double number = 0;

  bool IsName(std::string_view name) const { return kind == TokenKind::kName && text == name; }
  bool IsOperator(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
};

/// The last token is kEnd. Errors: InvalidArgument with the position.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace kvist::jinja
