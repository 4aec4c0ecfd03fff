#include "serve/tool_syntax.h"

#include <algorithm>
#include <optional>

namespace kvist::serve {

namespace json = boost::json;

namespace {

struct Row {
  std::string_view name;
  std::string_view needles[2];  ///< All are in the template; "" is in every one.
  CallStyle style;
  std::string_view open, close, arguments_key;
};

/// The first row that fits.
constexpr Row kRows[] = {
    {"harmony", {"<|channel|>", "functions."}, CallStyle::kChannels, "<|channel|>", "<|call|>", ""},
    {"qwen3-coder", {"<tool_call>", "<function="}, CallStyle::kTaggedXml, "<tool_call>", "</tool_call>", ""},
    {"hermes", {"<tool_call>", ""}, CallStyle::kTaggedJson, "<tool_call>", "</tool_call>", "arguments"},
    {"deepseek",
     {"<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>"},
     CallStyle::kSeparated,
     "<｜tool▁calls▁begin｜>",
     "<｜tool▁calls▁end｜>",
     ""},
    {"mistral", {"[TOOL_CALLS]", ""}, CallStyle::kJsonList, "[TOOL_CALLS]", "", "arguments"},
    {"granite", {"<|tool_call|>", ""}, CallStyle::kJsonList, "<|tool_call|>", "", "arguments"},
    {"llama3", {"{\"name\": function name, \"parameters\":", ""}, CallStyle::kBareJson, "", "", "parameters"},
};

}  // namespace

ToolSyntax DetectToolSyntax(std::string_view template_text) {
  ToolSyntax syntax;
  for (const Row& row : kRows) {
    const bool fits = std::ranges::all_of(
        row.needles, [&](std::string_view needle) { return template_text.find(needle) != std::string_view::npos; });
    if (!fits) continue;
    syntax = {.style = row.style,
              .name = row.name,
              .open = std::string(row.open),
              .close = std::string(row.close),
              .arguments_key = std::string(row.arguments_key),
              .think_open = {},
              .think_close = {}};
    break;
  }
  if (template_text.find("<think>") != std::string_view::npos) {
    syntax.think_open = "<think>";
    syntax.think_close = "</think>";
  }
  return syntax;
}

std::vector<TokenId> ControlMarks(const ToolSyntax& syntax, const Tokenizer& tokenizer) {
  std::vector<std::string_view> all = {syntax.open, syntax.close, syntax.think_open, syntax.think_close};
  if (syntax.style == CallStyle::kSeparated) {
    all.insert(all.end(), {marks::kCallBegin, marks::kCallEnd, marks::kSeparator});
  } else if (syntax.style == CallStyle::kChannels) {
    all.insert(all.end(), {marks::kStart, marks::kChannel, marks::kMessage, marks::kEnd, marks::kConstrain});
  } else if (syntax.style == CallStyle::kBareJson) {
    all.push_back(marks::kPythonTag);
  }
  std::vector<TokenId> tokens;
  for (const std::string_view mark : all) {
    const std::optional<TokenId> token = mark.empty() ? std::nullopt : tokenizer.Find(mark);
    if (token && tokenizer.IsControl(*token) && std::ranges::find(tokens, *token) == tokens.end())
      tokens.push_back(*token);
  }
  return tokens;
}

ToolTypes TypesOf(const json::value& tools) {
  ToolTypes types;
  if (!tools.is_array()) return types;
  for (const json::value& tool : tools.get_array()) {
    const json::object& function = tool.at("function").as_object();
    auto& parameters = types[std::string(function.at("name").as_string())];
    const json::value* schema = function.if_contains("parameters");
    if (schema == nullptr || !schema->is_object()) continue;
    const json::value* properties = schema->get_object().if_contains("properties");
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& member : properties->get_object()) {
      std::string& type = parameters[std::string(member.key())];
      if (!member.value().is_object()) continue;
      const json::value* given = member.value().get_object().if_contains("type");
      if (given != nullptr && given->is_string()) type = std::string(given->get_string());
    }
  }
  return types;
}

}  // namespace kvist::serve
