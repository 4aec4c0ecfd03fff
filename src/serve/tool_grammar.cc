#include "serve/tool_grammar.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "grammar/json_nodes.h"
#include "grammar/json_schema.h"
#include "modelfile/tokenizer_utf8.h"
#include "serve/api_error.h"

namespace kvist::serve {

namespace json = boost::json;
using grammar::Choice;
using grammar::Literal;
using grammar::Node;
using grammar::RuleSet;
using grammar::Sequence;

namespace {

bool IsTrue(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && *value == json::value(true);
}

class CallGrammar {
 public:
  CallGrammar(const ToolSyntax& syntax, const Tokenizer& tokenizer, const std::stop_token& stop, RuleSet& rules)
      : syntax_(syntax), tokenizer_(tokenizer), stop_(stop), rules_(rules) {}

  /// @param index  of the tool in the request
  absl::StatusOr<Node> Call(const json::object& function, size_t index) {
    const std::string name(function.at("name").as_string());
    const json::value* parameters = function.if_contains("parameters");
    const bool strict = IsTrue(function, "strict");
    const std::string place = Cat("tools[", index, "].function.parameters");
    absl::StatusOr<Node> call =
        syntax_.style == CallStyle::kTaggedXml ? XmlCall(name, parameters, strict) : JsonCall(name, parameters, strict);
    return call.ok() ? call : GrammarFault(place, call.status());
  }

  Node All(const Node& call, bool several) {
    const auto list = [&](std::string_view between) {
      if (!several) return call;
      return Sequence({call, grammar::Repeat(Sequence({Literal(between), call}), 0, grammar::kUnbounded)});
    };
    switch (syntax_.style) {
      case CallStyle::kTaggedJson:
      case CallStyle::kTaggedXml:
        return list("\n");
      case CallStyle::kJsonList:
        return Sequence({Mark(syntax_.open), Literal("["), list(", "), Literal("]")});
      case CallStyle::kSeparated:
        return Sequence({Mark(syntax_.open), list("\n"), Mark(syntax_.close)});
      default:
        return call;  // These models make one call at a time.
    }
  }

 private:
  Node Mark(std::string_view mark) const { return MarkNode(mark, tokenizer_); }

  absl::StatusOr<Node> Value(const json::value& schema, bool strict) {
    return grammar::SchemaNode(schema, {.strict = strict, .stop = stop_}, rules_);
  }

  absl::StatusOr<Node> JsonCall(const std::string& name, const json::value* parameters, bool strict) {
    Node arguments = Literal("{}");
    if (parameters != nullptr && !parameters->is_null()) {
      KVIST_ASSIGN_OR_RETURN(arguments, Value(*parameters, strict));
    }
    const Node object = Sequence(
        {Literal(Cat("{\"name\": ", json::serialize(json::string(name)), ", \"", syntax_.arguments_key, "\": ")),
         arguments, Literal("}")});
    switch (syntax_.style) {
      case CallStyle::kTaggedJson:
        return Sequence({Mark(syntax_.open), Literal("\n"), object, Literal("\n"), Mark(syntax_.close)});
      case CallStyle::kSeparated:
        return Sequence({Mark(marks::kCallBegin), Literal("function"), Mark(marks::kSeparator),
                         Literal(Cat(name, "\n```json\n")), arguments, Literal("\n```"), Mark(marks::kCallEnd)});
      case CallStyle::kChannels:
        return Sequence({Mark(marks::kChannel), Literal(Cat("commentary to=functions.", name, " ")),
                         Mark(marks::kConstrain), Literal("json"), Mark(marks::kMessage), arguments});
      default:
        return object;
    }
  }

  absl::StatusOr<Node> XmlCall(const std::string& name, const json::value* parameters, bool strict) {
    std::vector<Node> parts = {Mark(syntax_.open), Literal(Cat("\n<function=", name, ">\n"))};
    const json::object* schema = parameters == nullptr ? nullptr : parameters->if_object();
    const json::value* properties = schema == nullptr ? nullptr : schema->if_contains("properties");
    if (properties != nullptr && properties->is_object()) {
      for (const auto& member : properties->get_object()) {
        KVIST_ASSIGN_OR_RETURN(Node value, XmlValue(member.value(), *parameters, strict));
        Node parameter = Sequence({Literal(Cat("<parameter=", std::string_view(member.key()), ">\n")), value});
        parts.push_back(IsRequired(*schema, member.key()) ? parameter : grammar::Optional(std::move(parameter)));
      }
    }
    parts.push_back(Literal("</function>\n"));
    parts.push_back(Mark(syntax_.close));
    return Sequence(std::move(parts));
  }

  static bool IsRequired(const json::object& schema, std::string_view name) {
    const json::value* required = schema.if_contains("required");
    if (required == nullptr || !required->is_array()) return false;
    const json::array& names = required->get_array();
    return std::ranges::find(names, json::value(name)) != names.end();
  }

  /// Strings stand as they are, whatever else the schema says of them; other values are JSON. With the closing tag.
  absl::StatusOr<Node> XmlValue(const json::value& schema, const json::value& root, bool strict) {
    constexpr std::string_view kEnd = "\n</parameter>\n";
    const json::object* object = schema.if_object();
    const json::value* type = object == nullptr ? nullptr : object->if_contains("type");
    const bool text = type != nullptr && *type == json::value("string");
    if (text && object->contains("enum") && object->at("enum").is_array()) {
      std::vector<Node> words;
      for (const json::value& word : object->at("enum").get_array()) {
        if (word.is_string()) words.push_back(Literal(Cat(std::string_view(word.get_string()), kEnd)));
      }
      return Choice(std::move(words));
    }
    if (text) return grammar::TextThrough(rules_, kEnd);
    // References inside a parameter's schema are to the whole.
    json::value alone = schema;
    if (alone.is_object() && root.is_object()) {
      for (const std::string_view key : {"$defs", "definitions"}) {
        const json::value* shared = root.get_object().if_contains(key);
        if (shared != nullptr) alone.get_object()[key] = *shared;
      }
    }
    KVIST_ASSIGN_OR_RETURN(Node value, Value(alone, strict));
    return Sequence({std::move(value), Literal(kEnd)});
  }

  const ToolSyntax& syntax_;
  const Tokenizer& tokenizer_;
  const std::stop_token& stop_;
  RuleSet& rules_;
};

}  // namespace

Node MarkNode(std::string_view mark, const Tokenizer& tokenizer) {
  const std::optional<TokenId> token = tokenizer.Find(mark);
  return Literal(token && tokenizer.IsControl(*token) ? grammar::ControlBytes(*token) : std::string(mark));
}

absl::Status GrammarFault(std::string_view field, const absl::Status& status) {
  if (absl::IsCancelled(status) || absl::IsUnavailable(status)) return status;  // No fault of the field's.
  constexpr size_t kBytesMax = 300;  // Names and references in a message are the client's, and may be long.
  std::string_view text(status.message().data(), status.message().size());
  const bool cut = text.size() > kBytesMax;
  if (cut) text = text.substr(0, ValidUtf8Prefix(text.substr(0, kBytesMax)));
  return BadParam(field, Cat("'", field, "': ", text, cut ? "..." : ""));
}

absl::StatusOr<Node> CallsNode(const ToolSyntax& syntax, const Tokenizer& tokenizer, const json::array& tools,
                               std::string_view only, bool several, const std::stop_token& stop, RuleSet& rules) {
  CallGrammar calls(syntax, tokenizer, stop, rules);
  std::vector<Node> parts;
  for (size_t i = 0; i < tools.size(); ++i) {
    const json::object& function = tools[i].at("function").as_object();
    const std::string_view name = function.at("name").as_string();
    if (!only.empty() && name != only) continue;
    KVIST_ASSIGN_OR_RETURN(Node call, calls.Call(function, i));
    parts.push_back(grammar::Rule(rules.Add(Cat("call ", name), std::move(call))));
  }
  const Node call = grammar::Rule(rules.Add("call", Choice(std::move(parts))));
  return calls.All(call, several);
}

}  // namespace kvist::serve
