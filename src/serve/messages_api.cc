#include "serve/messages_api.h"

#include <utility>

#include "base/status.h"
#include "serve/api_error.h"
#include "serve/chat_message.h"
#include "serve/json_output.h"
#include "serve/messages_format.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

constexpr std::string_view kTextType[] = {"text"};

/// One block of a user's message: text stands in the message, a tool's result is a message of its own before it.
absl::Status ReadUserBlock(const Fields& block, std::string_view type, json::array& results, std::string& text) {
  if (type == "text") {
    if (block.Find("text") == nullptr) return block.Bad("text", "is missing");
    std::string piece;
    KVIST_RETURN_IF_ERROR(block.Read("text", piece));
    if (!text.empty()) text += '\n';
    text += piece;
    return absl::OkStatus();
  }
  if (type != "tool_result")
    return block.Bad("type", Cat("'", Shortened(type), "' is not supported; the model reads text only"));
  std::string call_id;
  bool is_error = false;
  KVIST_RETURN_IF_ERROR(block.Read("tool_use_id", call_id));
  if (call_id.empty()) return block.Bad("tool_use_id", "is missing");
  KVIST_RETURN_IF_ERROR(block.Read("is_error", is_error));
  KVIST_ASSIGN_OR_RETURN(const std::string content, internal::ReadText(block, "content", kTextType));
  results.push_back(ToolMessage(call_id, "", is_error ? "Error: " + content : content));
  return absl::OkStatus();
}

/// One block of an answer: text, a call, or what the model thought.
absl::Status ReadAssistantBlock(const Fields& block, std::string_view type, json::object& message) {
  if (type == "text" || type == "thinking") {
    std::string piece;
    KVIST_RETURN_IF_ERROR(block.Read(type, piece));
    json::value& field = message[type == "text" ? "content" : "reasoning_content"];
    if (!field.is_string()) field = "";
    field.get_string().append(piece);
    return absl::OkStatus();
  }
  if (type == "redacted_thinking") return absl::OkStatus();  // Not for us to read.
  if (type != "tool_use") {
    return block.Bad("type", Cat("'", Shortened(type), "' is not supported where the role is assistant"));
  }
  std::string id, name;
  KVIST_RETURN_IF_ERROR(block.Read("id", id));
  KVIST_RETURN_IF_ERROR(block.Read("name", name));
  if (name.empty()) return block.Bad("name", "is missing");
  KVIST_ASSIGN_OR_RETURN(const json::object* input, block.ReadObject("input"));
  AddCall(message, id, name, input == nullptr ? json::value(json::object()) : Copied(*input));
  return absl::OkStatus();
}

absl::Status ReadMessage(const Fields& message, json::array& messages) {
  std::string role;
  KVIST_RETURN_IF_ERROR(message.Read("role", role));
  if (role != "user" && role != "assistant") return message.Bad("role", "must be user or assistant");
  const json::value* content = message.Find("content");
  if (content == nullptr) return message.Bad("content", "is missing");
  if (content->is_string()) {
    messages.push_back(TextMessage(role, content->get_string()));
    return absl::OkStatus();
  }
  KVIST_ASSIGN_OR_RETURN(const json::array* blocks, message.ReadArray("content"));
  json::object answer = TextMessage(role, "");
  std::string text;
  const size_t before = messages.size();
  for (size_t i = 0; i < blocks->size(); ++i) {
    KVIST_ASSIGN_OR_RETURN(const Fields block, FieldsOf((*blocks)[i], Cat(message.NameOf("content"), "[", i, "]")));
    std::string type;
    KVIST_RETURN_IF_ERROR(block.Read("type", type));
    if (type.empty()) return block.Bad("type", "is missing");
    KVIST_RETURN_IF_ERROR(role == "user" ? ReadUserBlock(block, type, messages, text)
                                         : ReadAssistantBlock(block, type, answer));
  }
  if (role == "assistant") {
    messages.push_back(std::move(answer));
  } else if (!text.empty() || messages.size() == before) {
    messages.push_back(TextMessage(role, text));
  }
  return absl::OkStatus();
}

absl::Status ReadMessages(const Fields& body, json::array& messages) {
  KVIST_ASSIGN_OR_RETURN(const std::string system, internal::ReadText(body, "system", kTextType));
  if (!system.empty()) messages.push_back(TextMessage("system", system));
  KVIST_ASSIGN_OR_RETURN(const json::array* given, body.ReadArray("messages"));
  if (given == nullptr) return body.Bad("messages", "is missing");
  if (given->empty()) return body.Bad("messages", "is empty");
  for (size_t i = 0; i < given->size(); ++i) {
    KVIST_ASSIGN_OR_RETURN(const Fields message, FieldsOf((*given)[i], Cat("messages[", i, "]")));
    KVIST_RETURN_IF_ERROR(ReadMessage(message, messages));
  }
  if (messages.back().at("role") == "assistant") {
    return body.Bad("messages", "that end with an assistant's message, to be continued, are not supported");
  }
  return absl::OkStatus();
}

absl::Status ReadTools(const Fields& body, ChatRequest& request) {
  KVIST_ASSIGN_OR_RETURN(const json::array* given, body.ReadArray("tools"));
  json::object shaped;
  json::array tools;
  for (size_t i = 0; given != nullptr && i < given->size(); ++i) {
    KVIST_ASSIGN_OR_RETURN(const Fields tool, FieldsOf((*given)[i], Cat("tools[", i, "]")));
    std::string type = "custom", name, description;
    KVIST_RETURN_IF_ERROR(tool.Read("type", type));
    if (type != "custom")
      return tool.Bad("type", Cat("'", Shortened(type), "' is not supported; this server runs no tools"));
    KVIST_RETURN_IF_ERROR(tool.Read("name", name));
    if (name.empty()) return tool.Bad("name", "is missing");
    KVIST_RETURN_IF_ERROR(tool.Read("description", description));
    KVIST_RETURN_IF_ERROR(tool.ReadObject("input_schema").status());
    tools.push_back(FunctionTool(name, description, tool.Find("input_schema")));
  }
  shaped["tools"] = std::move(tools);
  KVIST_ASSIGN_OR_RETURN(const json::object* choice, body.ReadObject("tool_choice"));
  if (choice != nullptr) {
    const Fields fields(*choice, "tool_choice");
    std::string type, name;
    bool one_at_a_time = false;
    KVIST_RETURN_IF_ERROR(fields.Read("type", type));
    KVIST_RETURN_IF_ERROR(fields.Read("name", name));
    KVIST_RETURN_IF_ERROR(fields.Read("disable_parallel_tool_use", one_at_a_time));
    if (one_at_a_time) shaped["parallel_tool_calls"] = false;
    if (type == "tool") {
      shaped["tool_choice"] = {{"type", "function"}, {"function", {{"name", name}}}};
    } else if (type == "auto" || type == "none" || type == "any") {
      shaped["tool_choice"] = type == "any" ? "required" : type;
    } else {
      return fields.Bad("type", "must be auto, any, tool or none");
    }
  }
  return internal::ReadTools(Fields(shaped, ""), request.tools, request.options.wish);
}

/// A budget is for the model's maker to keep; templates know on and off.
absl::Status ReadThinking(const Fields& body, ChatRequest& request) {
  KVIST_ASSIGN_OR_RETURN(const json::object* given, body.ReadObject("thinking"));
  if (given == nullptr) return absl::OkStatus();
  const Fields thinking(*given, "thinking");
  std::string type;
  KVIST_RETURN_IF_ERROR(thinking.Read("type", type));
  if (type != "enabled" && type != "adaptive" && type != "disabled") {
    return thinking.Bad("type", "must be enabled, adaptive or disabled");
  }
  request.template_extra["enable_thinking"] = type != "disabled";
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatRequest> ParseMessagesRequest(std::string_view text, const RequestContext& context,
                                                 bool counts_only) {
  KVIST_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, context.json));
  KVIST_ASSIGN_OR_RETURN(const json::object* root, internal::RootObject(document));
  const Fields body(*root, "");
  ChatRequest request;
  engine::GenerationRequest& generation = request.options.generation;
  KVIST_RETURN_IF_ERROR(internal::ReadModel(body, context.model_id));
  KVIST_RETURN_IF_ERROR(body.Read("stream", request.options.stream));
  KVIST_RETURN_IF_ERROR(internal::ReadOwnFields(body, context, request.options));
  KVIST_RETURN_IF_ERROR(internal::ReadSampling(body, request.options));
  KVIST_RETURN_IF_ERROR(internal::ReadStopStrings(body, "stop_sequences", generation.stop));
  int64_t max_tokens = 0;
  KVIST_RETURN_IF_ERROR(body.Read("max_tokens", 1, UINT32_MAX, max_tokens));
  if (max_tokens == 0 && !counts_only) return body.Bad("max_tokens", "is missing");
  generation.max_tokens = static_cast<uint32_t>(max_tokens);
  for (const char* key : {"container", "mcp_servers", "context_management"}) {
    if (body.Find(key) != nullptr) return body.Bad(key, "is not supported");
  }
  KVIST_RETURN_IF_ERROR(ReadMessages(body, request.messages));
  KVIST_ASSIGN_OR_RETURN(request.marks, TakeMarks(request.options.forget, request.messages));
  KVIST_RETURN_IF_ERROR(ReadTools(body, request));
  KVIST_RETURN_IF_ERROR(ReadThinking(body, request));
  return request;
}

absl::StatusOr<PreparedRequest> PrepareMessages(const ServedModel& model, const PastStates& past, std::string_view body,
                                                int64_t now_unix_s) {
  KVIST_ASSIGN_OR_RETURN(ChatRequest request, ParseMessagesRequest(body, ContextOf(model, past)));
  KVIST_ASSIGN_OR_RETURN(PreparedRequest prepared, RenderChat(model, past, request, body.size(), now_unix_s));
  AnswerInfo info = InfoOf(model, request.options, now_unix_s);
  info.kind = "messages";
  info.id = NewId("msg_");
  prepared.format = std::make_unique<MessagesFormat>(std::move(info));
  return prepared;
}

absl::StatusOr<std::string> CountTokensBody(const ServedModel& model, const PastStates& past, std::string_view body,
                                            int64_t now_unix_s) {
  KVIST_ASSIGN_OR_RETURN(ChatRequest request, ParseMessagesRequest(body, ContextOf(model, past), /*counts_only=*/true));
  KVIST_ASSIGN_OR_RETURN(const PreparedRequest prepared, RenderChat(model, past, request, body.size(), now_unix_s));
  return JsonText(json::object{{"input_tokens", prepared.generations.at(0).prompt.size()}});
}

}  // namespace kvist::serve
