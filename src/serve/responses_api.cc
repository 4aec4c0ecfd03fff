#include "serve/responses_api.h"

#include <optional>
#include <utility>

#include "base/status.h"
#include "serve/api_error.h"
#include "serve/chat_message.h"
#include "serve/responses_format.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

constexpr std::string_view kInputTypes[] = {"input_text", "output_text", "text"};
constexpr std::string_view kReasoningTypes[] = {"reasoning_text", "summary_text"};

/// Text, thoughts and calls of the assistant that follow each other are one message.
json::object& AssistantMessage(json::array& messages, bool may_have_text) {
  if (!messages.empty()) {
    json::object& last = messages.back().get_object();
    const bool same = last.at("role") == "assistant" && !last.contains("tool_calls");
    if (same && (may_have_text || last.at("content").get_string().empty())) return last;
  }
  messages.push_back(TextMessage("assistant", ""));
  return messages.back().get_object();
}

absl::Status ReadMessageItem(const Fields& item, json::array& messages) {
  std::string role;
  KVIST_RETURN_IF_ERROR(item.Read("role", role));
  if (item.Find("content") == nullptr) return item.Bad("content", "is missing");
  KVIST_ASSIGN_OR_RETURN(const std::string text, internal::ReadText(item, "content", kInputTypes));
  if (role == "assistant") {
    AssistantMessage(messages, /*may_have_text=*/false)["content"] = text;
  } else if (role == "user" || role == "system" || role == "developer") {
    messages.push_back(TextMessage(role == "user" ? "user" : "system", text));
  } else {
    return item.Bad("role", "must be user, assistant, system or developer");
  }
  return absl::OkStatus();
}

absl::Status ReadCallItem(const Fields& item, json::array& messages) {
  std::string call_id, name;
  KVIST_RETURN_IF_ERROR(item.Read("call_id", call_id));
  KVIST_RETURN_IF_ERROR(item.Read("name", name));
  if (call_id.empty()) return item.Bad("call_id", "is missing");
  if (name.empty()) return item.Bad("name", "is missing");
  KVIST_ASSIGN_OR_RETURN(json::value arguments, ParsedArguments(item, "arguments"));
  // A call joins the calls and the text before it.
  const bool joins = !messages.empty() && messages.back().at("role") == "assistant";
  if (!joins) messages.push_back(TextMessage("assistant", ""));
  AddCall(messages.back().get_object(), call_id, name, std::move(arguments));
  return absl::OkStatus();
}

absl::Status ReadItem(const Fields& item, json::array& messages) {
  std::string type = "message";
  KVIST_RETURN_IF_ERROR(item.Read("type", type));
  if (type == "message") return ReadMessageItem(item, messages);
  if (type == "function_call") return ReadCallItem(item, messages);
  if (type == "function_call_output") {
    std::string call_id;
    KVIST_RETURN_IF_ERROR(item.Read("call_id", call_id));
    if (call_id.empty()) return item.Bad("call_id", "is missing");
    KVIST_ASSIGN_OR_RETURN(const std::string output, internal::ReadText(item, "output", kInputTypes));
    messages.push_back(ToolMessage(call_id, "", output));
    return absl::OkStatus();
  }
  if (type == "reasoning") {
    KVIST_ASSIGN_OR_RETURN(const std::string text, internal::ReadText(item, "content", kReasoningTypes));
    if (!text.empty()) AssistantMessage(messages, /*may_have_text=*/false)["reasoning_content"] = text;
    return absl::OkStatus();
  }
  return item.Bad("type", Cat("'", Shortened(type), "' is not supported"));
}

absl::Status ReadInput(const Fields& body, json::array& messages) {
  const json::value* input = body.Find("input");
  if (input == nullptr) return body.Bad("input", "is missing");
  if (input->is_string()) {
    messages.push_back(TextMessage("user", input->get_string()));
    return absl::OkStatus();
  }
  KVIST_ASSIGN_OR_RETURN(const json::array* items, body.ReadArray("input"));
  if (items->empty()) return body.Bad("input", "is empty");
  for (size_t i = 0; i < items->size(); ++i) {
    KVIST_ASSIGN_OR_RETURN(const Fields item, FieldsOf((*items)[i], Cat("input[", i, "]")));
    KVIST_RETURN_IF_ERROR(ReadItem(item, messages));
  }
  return absl::OkStatus();
}

absl::Status ReadTools(const Fields& body, ResponsesRequest& request) {
  KVIST_ASSIGN_OR_RETURN(const json::array* given, body.ReadArray("tools"));
  json::object shaped;
  json::array tools;
  for (size_t i = 0; given != nullptr && i < given->size(); ++i) {
    KVIST_ASSIGN_OR_RETURN(const Fields tool, FieldsOf((*given)[i], Cat("tools[", i, "]")));
    std::string type, name, description;
    KVIST_RETURN_IF_ERROR(tool.Read("type", type));
    if (type != "function")
      return tool.Bad("type", Cat("'", Shortened(type), "' is not supported; only 'function' is"));
    KVIST_RETURN_IF_ERROR(tool.Read("name", name));
    if (name.empty()) return tool.Bad("name", "is missing");
    KVIST_RETURN_IF_ERROR(tool.Read("description", description));
    KVIST_RETURN_IF_ERROR(tool.ReadObject("parameters").status());
    json::object shaped_tool = FunctionTool(name, description, tool.Find("parameters"));
    if (const json::value* strict = tool.Find("strict"); strict != nullptr) {
      shaped_tool["function"].get_object()["strict"] = Copied(*strict);
    }
    tools.push_back(std::move(shaped_tool));
  }
  request.shown["tools"] = given == nullptr ? json::value(json::array()) : Copied(*given);
  shaped["tools"] = std::move(tools);
  const json::value* choice = body.Find("tool_choice");
  request.shown["tool_choice"] = choice == nullptr ? json::value("auto") : Copied(*choice);
  if (choice != nullptr && choice->is_object()) {
    const Fields fields(choice->get_object(), "tool_choice");
    std::string type, name;
    KVIST_RETURN_IF_ERROR(fields.Read("type", type));
    KVIST_RETURN_IF_ERROR(fields.Read("name", name));
    if (type != "function") return fields.Bad("type", "must be function");
    shaped["tool_choice"] = {{"type", "function"}, {"function", {{"name", name}}}};
  } else if (choice != nullptr) {
    shaped["tool_choice"] = Copied(*choice);
  }
  bool parallel = true;
  KVIST_RETURN_IF_ERROR(body.Read("parallel_tool_calls", parallel));
  request.shown["parallel_tool_calls"] = parallel;
  if (!parallel) shaped["parallel_tool_calls"] = false;
  return internal::ReadTools(Fields(shaped, ""), request.chat.tools, request.chat.options.wish);
}

/// "text.format", the place of response_format here.
absl::Status ReadFormat(const Fields& body, ResponsesRequest& request) {
  KVIST_ASSIGN_OR_RETURN(const json::object* text, body.ReadObject("text"));
  request.shown["text"] = text == nullptr ? json::value{{"format", {{"type", "text"}}}} : Copied(*text);
  if (text == nullptr) return absl::OkStatus();
  const Fields fields(*text, "text");
  KVIST_ASSIGN_OR_RETURN(const json::object* given, fields.ReadObject("format"));
  if (given == nullptr) return absl::OkStatus();
  const Fields format(*given, "text.format");
  std::string type = "text";
  KVIST_RETURN_IF_ERROR(format.Read("type", type));
  OutputWish& wish = request.chat.options.wish;
  if (type == "text") return absl::OkStatus();
  wish.place = "text.format";
  if (type == "json_object") {
    wish.form = OutputWish::Form::kJsonObject;
    return absl::OkStatus();
  }
  if (type != "json_schema") return format.Bad("type", "must be text, json_object or json_schema");
  const json::value* schema = format.Find("schema");
  if (schema == nullptr) return format.Bad("schema", "is missing");
  wish.form = OutputWish::Form::kSchema;
  wish.schema = Copied(*schema);
  wish.place = format.NameOf("schema");
  return format.Read("strict", wish.strict);
}

absl::Status ReadReasoning(const Fields& body, ResponsesRequest& request) {
  KVIST_ASSIGN_OR_RETURN(const json::object* given, body.ReadObject("reasoning"));
  if (given == nullptr) return absl::OkStatus();
  std::string effort;
  KVIST_RETURN_IF_ERROR(Fields(*given, "reasoning").Read("effort", effort));
  if (!effort.empty()) request.chat.template_extra["reasoning_effort"] = effort;
  request.shown["reasoning"] = Copied(*given);
  return absl::OkStatus();
}

absl::Status RefuseUnsupported(const Fields& body) {
  for (const char* key : {"conversation", "prompt", "max_tool_calls"}) {
    if (body.Find(key) != nullptr) return body.Bad(key, "is not supported");
  }
  bool background = false;
  KVIST_RETURN_IF_ERROR(body.Read("background", background));
  if (background) return body.Bad("background", "is not supported");
  std::string truncation = "disabled";
  KVIST_RETURN_IF_ERROR(body.Read("truncation", truncation));
  if (truncation != "disabled") return body.Bad("truncation", "other than 'disabled' is not supported");
  int64_t top_logprobs = 0;
  KVIST_RETURN_IF_ERROR(body.Read("top_logprobs", 0, 20, top_logprobs));
  if (top_logprobs > 0) return body.Bad("top_logprobs", "is not supported here; /v1/chat/completions has it");
  KVIST_ASSIGN_OR_RETURN(const json::array* include, body.ReadArray("include"));
  for (size_t i = 0; include != nullptr && i < include->size(); ++i) {
    // There is no other form of reasoning than its text, which is sent anyway.
    if ((*include)[i] != "reasoning.encrypted_content") {
      return BadParam(Cat("include[", i, "]"), Cat("'include[", i, "]' is not supported"));
    }
  }
  return absl::OkStatus();
}

/// Templates know one message of the system, at the beginning.
void JoinSystem(json::array& messages) {
  while (messages.size() > 1 && messages[0].at("role") == "system" && messages[1].at("role") == "system") {
    json::string& first = messages[0].at("content").as_string();
    first.append("\n\n").append(messages[1].at("content").as_string());
    messages.erase(messages.begin() + 1);
  }
}

absl::Status ReadChat(const Fields& body, const RequestContext& context, ResponsesRequest& request) {
  RequestOptions& options = request.chat.options;
  KVIST_RETURN_IF_ERROR(internal::ReadModel(body, context.model_id));
  KVIST_RETURN_IF_ERROR(body.Read("stream", options.stream));
  KVIST_RETURN_IF_ERROR(internal::ReadOwnFields(body, context, options));
  KVIST_RETURN_IF_ERROR(internal::ReadSampling(body, options));
  int64_t max_tokens = options.generation.max_tokens;
  KVIST_RETURN_IF_ERROR(body.Read("max_output_tokens", 1, UINT32_MAX, max_tokens));
  options.generation.max_tokens = static_cast<uint32_t>(max_tokens);
  request.shown["max_output_tokens"] =
      body.Find("max_output_tokens") == nullptr ? json::value() : json::value(max_tokens);
  request.shown["temperature"] = options.generation.sampling.temperature;
  request.shown["top_p"] = options.generation.sampling.top_p;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ResponsesRequest> ParseResponsesRequest(
    std::string_view text, const RequestContext& context,
    const std::function<std::shared_ptr<const StoredResponse>(uint64_t cache_namespace, std::string_view id)>& find) {
  KVIST_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, context.json));
  KVIST_ASSIGN_OR_RETURN(const json::object* root, internal::RootObject(document));
  const Fields body(*root, "");
  ResponsesRequest request;
  ChatRequest& chat = request.chat;
  KVIST_RETURN_IF_ERROR(ReadChat(body, context, request));
  KVIST_RETURN_IF_ERROR(RefuseUnsupported(body));
  KVIST_RETURN_IF_ERROR(body.Read("store", request.store));
  std::string previous, instructions;
  KVIST_RETURN_IF_ERROR(body.Read("previous_response_id", previous));
  KVIST_RETURN_IF_ERROR(body.Read("instructions", instructions));
  if (!previous.empty()) {
    const auto found = find(chat.options.generation.cache_namespace, previous);
    if (found == nullptr) {
      return WithCode(UnknownParam("previous_response_id", Cat("there is no response '", Shortened(previous),
                                                               "' here; it may have been forgotten, or not stored")),
                      "previous_response_not_found");
    }
    chat.messages = json::array(found->messages, json::storage_ptr());
  }
  KVIST_RETURN_IF_ERROR(ReadInput(body, chat.messages));
  if (request.store) request.remembered = json::array(chat.messages, json::storage_ptr());
  if (!instructions.empty()) chat.messages.insert(chat.messages.begin(), TextMessage("system", instructions));
  JoinSystem(chat.messages);
  KVIST_ASSIGN_OR_RETURN(chat.marks, TakeMarks(chat.options.forget, chat.messages));
  KVIST_RETURN_IF_ERROR(ReadTools(body, request));
  KVIST_RETURN_IF_ERROR(ReadFormat(body, request));
  KVIST_RETURN_IF_ERROR(ReadReasoning(body, request));
  request.shown["store"] = request.store;
  request.shown["previous_response_id"] = previous.empty() ? json::value() : json::value(previous);
  request.shown["instructions"] = instructions.empty() ? json::value() : json::value(instructions);
  KVIST_ASSIGN_OR_RETURN(const json::object* metadata, body.ReadObject("metadata"));
  request.shown["metadata"] = metadata == nullptr ? json::value(json::object()) : Copied(*metadata);
  return request;
}

absl::StatusOr<PreparedRequest> PrepareResponse(const ServedModel& model, const PastStates& past, std::string_view body,
                                                int64_t now_unix_s) {
  const auto find = [&past](uint64_t cache_namespace, std::string_view id) -> std::shared_ptr<const StoredResponse> {
    const auto stored = past.responses.Find(id);
    const bool own = stored && (*stored)->tenant == past.tenant && (*stored)->cache_namespace == cache_namespace;
    return own ? *stored : nullptr;
  };
  KVIST_ASSIGN_OR_RETURN(ResponsesRequest request, ParseResponsesRequest(body, ContextOf(model, past), find));
  KVIST_ASSIGN_OR_RETURN(PreparedRequest prepared, RenderChat(model, past, request.chat, body.size(), now_unix_s));
  AnswerInfo info = InfoOf(model, request.chat.options, now_unix_s);
  info.kind = "responses";
  info.id = NewId("resp_");
  std::optional<ResponsesFormat::Memory> memory;
  if (request.store) {
    memory.emplace(ResponsesFormat::Memory{past.responses, past.tenant, prepared.generations[0].cache_namespace,
                                           std::move(request.remembered)});
  }
  prepared.format = std::make_unique<ResponsesFormat>(std::move(info), std::move(request.shown), std::move(memory));
  return prepared;
}

}  // namespace kvist::serve
