#pragma once

/// @file
/// What tests of grammars share.

#include <string_view>

#include <boost/json.hpp>

#include "absl/status/statusor.h"
#include "grammar/automaton.h"
#include "grammar/gbnf.h"
#include "grammar/grammar.h"
#include "grammar/json_schema.h"

namespace kvist::grammar {

/// The whole text is in the grammar.
inline bool Matches(const Grammar& grammar, std::string_view text) {
  Automaton automaton(grammar);
  Automaton::StateId state = Automaton::kStart;
  for (const char c : text) state = automaton.Next(state, static_cast<uint8_t>(c));
  return automaton.IsComplete(state);
}

/// The grammar of a schema that is written as JSON.
inline absl::StatusOr<Grammar> SchemaGrammar(std::string_view schema, bool strict = true) {
  RuleSet rules;
  absl::StatusOr<Node> node = SchemaNode(boost::json::parse(schema), {.strict = strict}, rules);
  if (!node.ok()) return node.status();
  const RuleId root = rules.Add("root", *std::move(node));
  return Grammar::Compile(rules, root);
}

}  // namespace kvist::grammar
