#pragma once

/// @file
/// What a request wants its output to be: a format, calls of tools. Plain data, as parsed (request.h); becomes a
/// grammar and a parser in output_rules.h.

#include <string>

#include <boost/json.hpp>

namespace kvist::serve {

struct OutputWish {
  enum class Form : uint8_t { kText, kJsonObject, kSchema, kGrammar, kRegex };
  enum class Calls : uint8_t { kAuto, kNone, kRequired, kNamed };

  Form form = Form::kText;
  std::string place;          ///< The field that says so, for errors.
  boost::json::value schema;  ///< With kSchema.
  bool strict = false;        ///< What the schema says and kvist cannot honour is an error.
  std::string text;           ///< Of the grammar or regular expression.

  Calls calls = Calls::kAuto;
  std::string call_name;        ///< With kNamed.
  bool parallel_calls = true;   ///< Several at once may be forced.
  bool reasoning_apart = true;  ///< Marked reasoning is not content.

  bool forces_calls() const { return calls == Calls::kRequired || calls == Calls::kNamed; }
};

}  // namespace kvist::serve
