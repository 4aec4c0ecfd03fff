#pragma once

/// @file
/// Reads grammars that people write: rules `name ::= expression` in the manner of GBNF (docs/serving.md describes the
/// notation). Pure; any thread. Non-goals: left recursion, which is refused.

#include <string_view>

#include "absl/status/statusor.h"
#include "grammar/grammar.h"

namespace kvist::grammar {

struct GbnfLimits {
  size_t bytes_max = 256u << 10;
  uint32_t nesting_max = 64;          ///< Parentheses.
  uint32_t repetitions_max = 10'000;  ///< In {m,n}.
};

/// The grammar whose rule `root` is to be matched. Errors: InvalidArgument "line L, column C: ..." (columns in bytes);
/// those of Grammar::Compile.
absl::StatusOr<Grammar> ParseGbnf(std::string_view text, const GbnfLimits& limits = {});

}  // namespace kvist::grammar
