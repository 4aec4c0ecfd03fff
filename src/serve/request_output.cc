#include <string>
#include <utility>

#include "base/status.h"
#include "serve/api_error.h"
#include "serve/request.h"

namespace kvist::serve::internal {

namespace json = boost::json;

namespace {

absl::Status ReadResponseFormat(const Fields& body, OutputWish& wish) {
  KVIST_ASSIGN_OR_RETURN(const json::object* given, body.ReadObject("response_format"));
  if (given == nullptr) return absl::OkStatus();
  const Fields format(*given, "response_format");
  std::string type;
  KVIST_RETURN_IF_ERROR(format.Read("type", type));
  if (type.empty()) return format.Bad("type", "is missing");
  wish.place = "response_format";
  if (type == "text") return absl::OkStatus();
  if (type == "json_object") {
    wish.form = OutputWish::Form::kJsonObject;
    // llama.cpp's server takes a schema here.
    if (const json::value* schema = format.Find("schema"); schema != nullptr) {
      wish.form = OutputWish::Form::kSchema;
      wish.schema = json::value(*schema, json::storage_ptr());
      wish.place = "response_format.schema";
    }
    return absl::OkStatus();
  }
  if (type != "json_schema") return format.Bad("type", "must be text, json_object or json_schema");
  KVIST_ASSIGN_OR_RETURN(const json::object* named, format.ReadObject("json_schema"));
  if (named == nullptr) return format.Bad("json_schema", "is missing");
  const Fields inner(*named, "response_format.json_schema");
  std::string name;
  KVIST_RETURN_IF_ERROR(inner.Read("name", name));
  KVIST_RETURN_IF_ERROR(inner.Read("strict", wish.strict));
  const json::value* schema = inner.Find("schema");
  if (schema == nullptr) return inner.Bad("schema", "is missing");
  wish.form = OutputWish::Form::kSchema;
  wish.schema = json::value(*schema, json::storage_ptr());
  wish.place = inner.NameOf("schema");
  return absl::OkStatus();
}

/// llama.cpp's and vLLM's names for the same.
absl::Status ReadGuides(const Fields& body, OutputWish& wish) {
  const std::pair<std::string_view, OutputWish::Form> guides[] = {{"grammar", OutputWish::Form::kGrammar},
                                                                  {"json_schema", OutputWish::Form::kSchema},
                                                                  {"guided_grammar", OutputWish::Form::kGrammar},
                                                                  {"guided_json", OutputWish::Form::kSchema},
                                                                  {"guided_regex", OutputWish::Form::kRegex}};
  for (const auto& [key, form] : guides) {
    const json::value* given = body.Find(key);
    if (given == nullptr) continue;
    if (wish.form != OutputWish::Form::kText) return body.Bad(key, Cat("cannot be combined with '", wish.place, "'"));
    wish.form = form;
    wish.place = std::string(key);
    if (form == OutputWish::Form::kSchema) {
      wish.schema = json::value(*given, json::storage_ptr());
      if (!given->is_string()) continue;
      absl::StatusOr<JsonDocument> parsed = JsonDocument::Parse(std::string_view(given->get_string()));
      if (!parsed.ok()) return body.Bad(key, Cat("is no JSON: ", parsed.status().message()));
      wish.schema = json::value(parsed->root(), json::storage_ptr());
    } else {
      KVIST_RETURN_IF_ERROR(body.Read(key, wish.text));
    }
  }
  if (body.Find("guided_choice") != nullptr) {
    return body.Bad("guided_choice", "is not supported; use 'response_format' with an enum, or 'grammar'");
  }
  return absl::OkStatus();
}

absl::Status ReadToolChoice(const Fields& body, bool has_tools, OutputWish& wish) {
  const json::value* choice = body.Find("tool_choice");
  if (choice == nullptr) return absl::OkStatus();
  if (choice->is_string()) {
    const std::string_view word = choice->get_string();
    if (word == "none") {
      wish.calls = OutputWish::Calls::kNone;
    } else if (word == "required") {
      wish.calls = OutputWish::Calls::kRequired;
    } else if (word != "auto") {
      return body.Bad("tool_choice", "must be none, auto, required or a function");
    }
  } else {
    KVIST_ASSIGN_OR_RETURN(const json::object* object, body.ReadObject("tool_choice"));
    const Fields named(*object, "tool_choice");
    std::string type = "function";
    KVIST_RETURN_IF_ERROR(named.Read("type", type));
    if (type != "function") return named.Bad("type", "must be 'function'");
    KVIST_ASSIGN_OR_RETURN(const json::object* function, named.ReadObject("function"));
    if (function == nullptr) return named.Bad("function", "is missing");
    const Fields inner(*function, "tool_choice.function");
    KVIST_RETURN_IF_ERROR(inner.Read("name", wish.call_name));
    if (wish.call_name.empty()) return inner.Bad("name", "is missing");
    wish.calls = OutputWish::Calls::kNamed;
  }
  if (wish.forces_calls() && !has_tools) return body.Bad("tool_choice", "wants a call, but there are no 'tools'");
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadTool(const json::value& value, const std::string& name) {
  if (!value.is_object()) return BadParam(name, Cat("'", name, "' must be an object, not ", JsonKindName(value)));
  const Fields tool(value.get_object(), name);
  std::string type = "function", function_name, description;
  KVIST_RETURN_IF_ERROR(tool.Read("type", type));
  if (type != "function") return tool.Bad("type", Cat("'", Shortened(type), "' is not supported; only 'function' is"));
  KVIST_ASSIGN_OR_RETURN(const json::object* function, tool.ReadObject("function"));
  if (function == nullptr) return tool.Bad("function", "is missing");
  const Fields inner(*function, tool.NameOf("function"));
  KVIST_RETURN_IF_ERROR(inner.Read("name", function_name));
  if (function_name.empty()) return inner.Bad("name", "is missing");
  KVIST_RETURN_IF_ERROR(inner.Read("description", description));
  KVIST_RETURN_IF_ERROR(inner.ReadObject("parameters").status());
  return function_name;
}

}  // namespace

absl::Status ReadOutputWish(const Fields& body, OutputWish& wish) {
  KVIST_RETURN_IF_ERROR(ReadResponseFormat(body, wish));
  KVIST_RETURN_IF_ERROR(ReadGuides(body, wish));
  std::string reasoning = "auto";
  KVIST_RETURN_IF_ERROR(body.Read("reasoning_format", reasoning));
  if (reasoning != "auto" && reasoning != "deepseek" && reasoning != "none") {
    return body.Bad("reasoning_format", "must be auto, deepseek or none");
  }
  wish.reasoning_apart = reasoning != "none";
  return absl::OkStatus();
}

absl::Status ReadTools(const Fields& body, json::value& tools, OutputWish& wish) {
  KVIST_ASSIGN_OR_RETURN(const json::array* given, body.ReadArray("tools"));
  bool named = false;
  KVIST_RETURN_IF_ERROR(ReadToolChoice(body, given != nullptr && !given->empty(), wish));
  for (size_t i = 0; given != nullptr && i < given->size(); ++i) {
    KVIST_ASSIGN_OR_RETURN(const std::string name, ReadTool((*given)[i], Cat("tools[", i, "]")));
    named |= name == wish.call_name;
  }
  if (wish.calls == OutputWish::Calls::kNamed && !named) {
    return body.Bad("tool_choice", Cat("names '", Shortened(wish.call_name), "', which is not among 'tools'"));
  }
  KVIST_RETURN_IF_ERROR(body.Read("parallel_tool_calls", wish.parallel_calls));
  if (given != nullptr && !given->empty() && wish.calls != OutputWish::Calls::kNone) {
    tools = json::value(*given, json::storage_ptr());
  }
  return absl::OkStatus();
}

}  // namespace kvist::serve::internal
