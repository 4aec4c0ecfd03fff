#pragma once

/// @file
/// What must hold for any text that a client sends as a grammar, a schema or a pattern. Shared by the fuzzer and the
/// replay of its corpus.

#include <string_view>

namespace kvist::grammar {

/// The first byte says what the rest is: 's' and 'l' a JSON schema, strict or not; 'r' a pattern; else a grammar. What
/// compiles is run: aborts when it accepts what is no UTF-8, comes to a dead end, or (of schemas) writes what is no
/// JSON.
/// @return true when it compiles
bool CheckGrammarInput(std::string_view input);

}  // namespace kvist::grammar
