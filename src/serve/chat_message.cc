#include "serve/chat_message.h"

#include <utility>

#include "base/status.h"

namespace kvist::serve {

namespace json = boost::json;

json::object TextMessage(std::string_view role, std::string_view text) {
  return {{"role", role}, {"content", text}};
}

json::object ToolMessage(std::string_view call_id, std::string_view name, std::string_view text) {
  json::object message = TextMessage("tool", text);
  if (!call_id.empty()) message["tool_call_id"] = call_id;
  if (!name.empty()) message["name"] = name;
  return message;
}

void AddCall(json::object& message, std::string_view id, std::string_view name, json::value arguments) {
  json::object call;
  if (!id.empty()) call["id"] = id;
  call["type"] = "function";
  call["function"] = {{"name", name}, {"arguments", std::move(arguments)}};
  json::value& calls = message["tool_calls"];
  if (!calls.is_array()) calls = json::array();
  calls.get_array().push_back(std::move(call));
}

json::object FunctionTool(std::string_view name, std::string_view description, const json::value* parameters) {
  json::object function = {{"name", name}};
  if (!description.empty()) function["description"] = description;
  if (parameters != nullptr) function["parameters"] = Copied(*parameters);
  return {{"type", "function"}, {"function", std::move(function)}};
}

json::value Copied(const json::value& value) {
  return json::value(value, json::storage_ptr());
}

absl::StatusOr<json::value> ParsedArguments(const Fields& fields, std::string_view key) {
  std::string text;
  KVIST_RETURN_IF_ERROR(fields.Read(key, text));
  if (text.empty()) return json::value(json::object());
  const absl::StatusOr<JsonDocument> parsed = JsonDocument::Parse(text, {.names_repeat = true});  // A model wrote it.
  if (!parsed.ok() || !parsed->root().is_object()) return fields.Bad(key, "must be a string with a JSON object");
  return Copied(parsed->root());
}

}  // namespace kvist::serve
