#pragma once

/// @file
/// How a model writes calls of tools and its reasoning, told from its chat template: one row of a table for each
/// manner. Plain data; any thread. Non-goals: reading an output (output_parser.h), forcing one (tool_grammar.h).

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "modelfile/tokenizer.h"

namespace kvist::serve {

enum class CallStyle : uint8_t {
  kNone,        ///< The template knows no tools.
  kTaggedJson,  ///< <tool_call>{"name": ..., "arguments": {...}}</tool_call>, one after another.
  kTaggedXml,   ///< <tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>.
  kBareJson,    ///< The whole answer is {"name": ..., "parameters": {...}}; others may follow after ';'.
  kJsonList,    ///< A mark, then [{"name": ..., "arguments": {...}}, ...].
  kSeparated,   ///< Marks for the list, for each call and between its kind, name and fenced arguments.
  kChannels,    ///< Messages with a header that names channel and recipient.
};

struct ToolSyntax {
  CallStyle style = CallStyle::kNone;
  std::string_view name = "none";       ///< For people.
  std::string open, close;              ///< Around a call, or around all of them; `close` may be empty.
  std::string arguments_key;            ///< In JSON that writes calls.
  std::string think_open, think_close;  ///< Around reasoning; empty = none that is marked so.
};

/// @param template_text  of the model's chat template; "" = none
ToolSyntax DetectToolSyntax(std::string_view template_text);

/// Every mark that the syntax knows and that is a control token of the vocabulary: its text must be shown to a parser.
std::vector<TokenId> ControlMarks(const ToolSyntax& syntax, const Tokenizer& tokenizer);

/// Types of the tools' parameters as their schemas name them ("string", ...), by tool and parameter; no type = "".
using ToolTypes = std::map<std::string, std::map<std::string, std::string, std::less<>>, std::less<>>;
/// @param tools  checked (request.h), or null
ToolTypes TypesOf(const boost::json::value& tools);

/// Marks of the two manners that have more than one pair.
namespace marks {
inline constexpr std::string_view kCallBegin = "<｜tool▁call▁begin｜>", kCallEnd = "<｜tool▁call▁end｜>";
inline constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
inline constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kMessage = "<|message|>";
inline constexpr std::string_view kEnd = "<|end|>", kConstrain = "<|constrain|>", kCall = "<|call|>";
inline constexpr std::string_view kPythonTag = "<|python_tag|>";
}  // namespace marks

}  // namespace kvist::serve
