#pragma once

/// @file
/// Calls of tools as a model writes them, as a grammar: what is forced is what the output parser reads back. Pure; any
/// thread.

#include <stop_token>
#include <string_view>

#include <boost/json.hpp>

#include "absl/status/statusor.h"
#include "grammar/expression.h"
#include "modelfile/tokenizer.h"
#include "serve/tool_syntax.h"

namespace kvist::serve {

/// A mark as the vocabulary has it: a control token, or text.
grammar::Node MarkNode(std::string_view mark, const Tokenizer& tokenizer);

/// Why there is no grammar, with the field at fault; what was cancelled stays that.
absl::Status GrammarFault(std::string_view field, const absl::Status& status);

/// One call or more of `tools`. Errors: InvalidArgument naming the tool whose parameters are no schema, or are strict
/// and cannot be honoured; Cancelled. REQUIRES: a style with calls.
/// @param tools  checked (request.h), not empty. @param only  the name of the one that may be called; "" = any
/// @param several  more than one call may come
absl::StatusOr<grammar::Node> CallsNode(const ToolSyntax& syntax, const Tokenizer& tokenizer,
                                        const boost::json::array& tools, std::string_view only, bool several,
                                        const std::stop_token& stop, grammar::RuleSet& rules);

}  // namespace kvist::serve
