#pragma once

/// @file
/// From what a request wants its output to be to what the engine and the parser of the output are told. Threads: any;
/// compiling a grammar takes milliseconds, a hostile one seconds.

#include <memory>
#include <span>
#include <stop_token>

#include <boost/json.hpp>

#include "absl/status/statusor.h"
#include "engine/generation.h"
#include "serve/grammars.h"
#include "serve/output_parser.h"
#include "serve/output_wish.h"

namespace kvist::serve {

struct OutputRules {
  std::shared_ptr<const grammar::Constraint> constraint;  ///< Null = the output may be anything.
  std::shared_ptr<const OutputSyntax> syntax;             ///< Null = all of it is content.
};

/// Whom the output is for.
struct OutputContext {
  const Tokenizer& tokenizer;
  const ToolSyntax& tools;  ///< Of the model's chat template.
  Grammars& grammars;
  std::span<const TokenId> prompt;
  std::stop_token stop{};  ///< Nobody wants it any more.
};

/// @param tools  that are offered, checked (request.h), or null
/// Errors: InvalidArgument, with the field at fault, for a grammar or schema that cannot be honoured, and for calls
/// that the chat template does not know; Cancelled.
absl::StatusOr<OutputRules> MakeChatRules(const OutputContext& context, const OutputWish& wish,
                                          const boost::json::value& tools);

/// The same for a text: neither calls nor reasoning.
absl::StatusOr<OutputRules> MakeTextRules(const OutputContext& context, const OutputWish& wish);

}  // namespace kvist::serve
