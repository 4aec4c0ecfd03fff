#include <algorithm>

#include "base/status.h"
#include "serve/api_error.h"
#include "serve/request.h"

namespace kvist::serve::internal {

namespace json = boost::json;

namespace {

constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};

/// Text parts are joined by line breaks, as other servers do.
absl::Status JoinParts(const json::array& parts, const std::string& place, std::span<const std::string_view> types,
                       std::string& text) {
  for (size_t i = 0; i < parts.size(); ++i) {
    KVIST_ASSIGN_OR_RETURN(const Fields part, FieldsOf(parts[i], Cat(place, "[", i, "]")));
    std::string type, piece;
    KVIST_RETURN_IF_ERROR(part.Read("type", type));
    if (type.empty()) return part.Bad("type", "is missing");
    if (std::ranges::find(types, type) == types.end())
      return part.Bad("type", Cat("'", Shortened(type), "' is not supported; the model reads text only"));
    if (part.Find("text") == nullptr) return part.Bad("text", "is missing");
    KVIST_RETURN_IF_ERROR(part.Read("text", piece));
    if (i > 0) text += '\n';
    text += piece;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadContent(const Fields& message, bool may_lack) {
  constexpr std::string_view kTypes[] = {"text"};
  if (!may_lack && message.Find("content") == nullptr) return message.Bad("content", "is missing");
  return ReadText(message, "content", kTypes);
}

/// Templates want an object; the API sends its text.
absl::Status ParseArguments(const Fields& function, json::object& out) {
  const json::value* arguments = function.Find("arguments");
  if (arguments == nullptr) {
    out["arguments"] = json::object();
    return absl::OkStatus();
  }
  if (arguments->is_object()) return absl::OkStatus();
  if (!arguments->is_string()) {
    return function.Bad("arguments", Cat("must be a string with a JSON object, not ", JsonKindName(*arguments)));
  }
  const std::string_view text = arguments->get_string();
  if (text.empty()) {
    out["arguments"] = json::object();
    return absl::OkStatus();
  }
  absl::StatusOr<JsonDocument> parsed = JsonDocument::Parse(text, {.names_repeat = true});  // A model wrote it.
  if (!parsed.ok() || !parsed->root().is_object())
    return function.Bad("arguments", "must be a string with a JSON object");
  out["arguments"] = json::value(parsed->root(), json::storage_ptr());
  return absl::OkStatus();
}

absl::Status ReadToolCalls(const Fields& message, json::object& out) {
  KVIST_ASSIGN_OR_RETURN(const json::array* calls, message.ReadArray("tool_calls"));
  if (calls == nullptr) {
    out.stable_erase("tool_calls");  // A null would be something to a template.
    return absl::OkStatus();
  }
  json::array& copies = out["tool_calls"].get_array();
  for (size_t i = 0; i < calls->size(); ++i) {
    const std::string name = Cat(message.NameOf("tool_calls"), "[", i, "]");
    if (!(*calls)[i].is_object())
      return BadParam(name, Cat("'", name, "' must be an object, not ", JsonKindName((*calls)[i])));
    const Fields call((*calls)[i].get_object(), name);
    std::string id, function_name;
    KVIST_RETURN_IF_ERROR(call.Read("id", id));
    KVIST_ASSIGN_OR_RETURN(const json::object* given, call.ReadObject("function"));
    if (given == nullptr) return call.Bad("function", "is missing");
    const Fields function(*given, call.NameOf("function"));
    KVIST_RETURN_IF_ERROR(function.Read("name", function_name));
    if (function_name.empty()) return function.Bad("name", "is missing");
    KVIST_RETURN_IF_ERROR(ParseArguments(function, copies[i].get_object()["function"].get_object()));
  }
  return absl::OkStatus();
}

absl::Status ReadMessage(const json::value& value, size_t index, json::object& out) {
  const std::string place = Cat("messages[", index, "]");
  if (!value.is_object()) return BadParam(place, Cat("'", place, "' must be an object, not ", JsonKindName(value)));
  const Fields message(value.get_object(), place);
  std::string role, name, call_id;
  KVIST_RETURN_IF_ERROR(message.Read("role", role));
  if (role.empty()) return message.Bad("role", "is missing");
  if (std::ranges::find(kRoles, role) == std::end(kRoles)) {
    return message.Bad("role", Cat("must be system, developer, user, assistant or tool, not '", Shortened(role), "'"));
  }
  KVIST_RETURN_IF_ERROR(message.Read("name", name));
  KVIST_RETURN_IF_ERROR(message.Read("tool_call_id", call_id));
  KVIST_ASSIGN_OR_RETURN(const std::string content, ReadContent(message, /*may_lack=*/role == "assistant"));
  out["role"] = role == "developer" ? "system" : role;  // The newer name; templates know the older one.
  out["content"] = content;
  if (role == "assistant") return ReadToolCalls(message, out);
  if (message.Find("tool_calls") != nullptr)
    return message.Bad("tool_calls", "is only allowed where the role is assistant");
  out.stable_erase("tool_calls");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadText(const Fields& fields, std::string_view key,
                                     std::span<const std::string_view> part_types) {
  const json::value* content = fields.Find(key);
  std::string text;
  if (content == nullptr) return text;
  if (content->is_string()) return std::string(content->get_string().begin(), content->get_string().end());
  if (!content->is_array()) {
    return fields.Bad(key, Cat("must be a string or an array of text parts, not ", JsonKindName(*content)));
  }
  KVIST_RETURN_IF_ERROR(JoinParts(content->get_array(), fields.NameOf(key), part_types, text));
  return text;
}

absl::Status ReadMessages(const Fields& body, json::array& messages) {
  KVIST_ASSIGN_OR_RETURN(const json::array* given, body.ReadArray("messages"));
  if (given == nullptr) return body.Bad("messages", "is missing");
  if (given->empty()) return body.Bad("messages", "is empty");
  messages = json::array(*given, json::storage_ptr());
  for (size_t i = 0; i < given->size(); ++i) {
    json::object none;
    json::object& out = messages[i].is_object() ? messages[i].get_object() : none;
    KVIST_RETURN_IF_ERROR(ReadMessage((*given)[i], i, out));
  }
  return absl::OkStatus();
}

}  // namespace kvist::serve::internal
