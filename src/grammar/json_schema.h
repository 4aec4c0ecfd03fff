#pragma once

/// @file
/// JSON schemas as grammars. What a schema says is honoured or refused, never passed over in silence; where a schema
/// leaves a choice that no output needs, the grammar may take it: members come in the schema's order, and members that
/// the schema does not name only where it says which they may be. docs/serving.md has the table. Pure; any thread.
/// Source: JSON Schema 2020-12 (https://json-schema.org/draft/2020-12).

#include <stop_token>
#include <string_view>

#include <boost/json.hpp>

#include "absl/status/statusor.h"
#include "grammar/expression.h"
#include "grammar/grammar.h"

namespace kvist::grammar {

struct SchemaOptions {
  /// What cannot be honoured is an error; else the grammar is wider than the schema there.
  bool strict = true;
  std::stop_token stop{};  ///< Nobody wants it any more: large schemas may take seconds.
};

/// What values of `schema` look like, with rules added to `rules`.
/// Errors: InvalidArgument that begins with the place in the schema ("#/properties/age: ..."); Cancelled.
absl::StatusOr<Node> SchemaNode(const boost::json::value& schema, const SchemaOptions& options, RuleSet& rules);

}  // namespace kvist::grammar
