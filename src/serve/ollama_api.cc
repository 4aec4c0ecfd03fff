#include "serve/ollama_api.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/status.h"
#include "serve/api_error.h"
#include "serve/chat_message.h"
#include "serve/json_output.h"
#include "serve/ollama_format.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

constexpr std::string_view kRoles[] = {"system", "user", "assistant", "tool"};

/// "options": sampling under the usual names, and the bounds of output and context.
absl::Status ReadOptions(const Fields& body, const RequestContext& context, RequestOptions& options) {
  options.stream = true;  // What clients expect who do not say.
  KVIST_RETURN_IF_ERROR(body.Read("stream", options.stream));
  KVIST_RETURN_IF_ERROR(internal::ReadOwnFields(body, context, options));
  KVIST_ASSIGN_OR_RETURN(const json::object* given, body.ReadObject("options"));
  if (given == nullptr) return absl::OkStatus();
  const Fields fields(*given, "options");
  KVIST_RETURN_IF_ERROR(internal::ReadSampling(fields, options));
  KVIST_RETURN_IF_ERROR(internal::ReadStopStrings(fields, "stop", options.generation.stop));
  int64_t predict = -1, context_tokens = 0;  // Negative: no bound but the context's end.
  KVIST_RETURN_IF_ERROR(fields.Read("num_predict", INT32_MIN, INT32_MAX, predict));
  if (predict == 0) return fields.Bad("num_predict", "must not be 0");
  if (predict > 0) options.generation.max_tokens = static_cast<uint32_t>(predict);
  // The context is as large as the server was started with; a prompt that does not fit is refused, not cut.
  KVIST_RETURN_IF_ERROR(fields.Read("num_ctx", 0, INT32_MAX, context_tokens));
  for (const char* key : {"mirostat", "mirostat_eta", "mirostat_tau", "tfs_z", "typical_p"}) {
    if (fields.Find(key) != nullptr) return fields.Bad(key, "is not supported");
  }
  return absl::OkStatus();
}

/// true, false, or how hard.
absl::Status ReadThink(const Fields& body, json::object& extra) {
  const json::value* think = body.Find("think");
  if (think == nullptr) return absl::OkStatus();
  if (think->is_bool()) {
    extra["enable_thinking"] = think->get_bool();
  } else if (think->is_string()) {
    extra["enable_thinking"] = true;
    extra["reasoning_effort"] = Copied(*think);
  } else {
    return body.Bad("think", Cat("must be true, false or a string, not ", JsonKindName(*think)));
  }
  return absl::OkStatus();
}

absl::Status RefuseImages(const Fields& fields) {
  KVIST_ASSIGN_OR_RETURN(const json::array* images, fields.ReadArray("images"));
  return images == nullptr || images->empty() ? absl::OkStatus()
                                              : fields.Bad("images", "are not supported; the model reads text only");
}

absl::Status ReadCalls(const Fields& message, json::object& out) {
  KVIST_ASSIGN_OR_RETURN(const json::array* calls, message.ReadArray("tool_calls"));
  for (size_t i = 0; calls != nullptr && i < calls->size(); ++i) {
    KVIST_ASSIGN_OR_RETURN(const Fields call, FieldsOf((*calls)[i], Cat(message.NameOf("tool_calls"), "[", i, "]")));
    KVIST_ASSIGN_OR_RETURN(const json::object* given, call.ReadObject("function"));
    if (given == nullptr) return call.Bad("function", "is missing");
    const Fields function(*given, call.NameOf("function"));
    std::string name;
    KVIST_RETURN_IF_ERROR(function.Read("name", name));
    if (name.empty()) return function.Bad("name", "is missing");
    KVIST_ASSIGN_OR_RETURN(const json::object* arguments, function.ReadObject("arguments"));
    AddCall(out, "", name, arguments == nullptr ? json::value(json::object()) : Copied(*arguments));
  }
  return absl::OkStatus();
}

absl::Status ReadMessage(const Fields& message, json::array& messages) {
  std::string role, content, thinking, tool_name;
  KVIST_RETURN_IF_ERROR(message.Read("role", role));
  if (std::ranges::find(kRoles, role) == std::end(kRoles)) {
    return message.Bad("role", "must be system, user, assistant or tool");
  }
  KVIST_RETURN_IF_ERROR(message.Read("content", content));
  KVIST_RETURN_IF_ERROR(message.Read("thinking", thinking));
  KVIST_RETURN_IF_ERROR(message.Read("tool_name", tool_name));
  KVIST_RETURN_IF_ERROR(RefuseImages(message));
  if (role == "tool") {
    messages.push_back(ToolMessage("", tool_name, content));
    return absl::OkStatus();
  }
  json::object out = TextMessage(role, content);
  if (role == "assistant") {
    if (!thinking.empty()) out["reasoning_content"] = thinking;
    KVIST_RETURN_IF_ERROR(ReadCalls(message, out));
  }
  messages.push_back(std::move(out));
  return absl::OkStatus();
}

/// "format": "json", or a schema.
absl::Status ReadFormat(const Fields& body, OutputWish& wish) {
  const json::value* format = body.Find("format");
  if (format == nullptr || (format->is_string() && format->get_string().empty())) return absl::OkStatus();
  wish.place = "format";
  if (*format == json::value("json")) {
    wish.form = OutputWish::Form::kJsonObject;
    return absl::OkStatus();
  }
  if (!format->is_object()) return body.Bad("format", "must be \"json\" or a schema");
  wish.form = OutputWish::Form::kSchema;
  wish.schema = Copied(*format);
  return absl::OkStatus();
}

AnswerInfo OllamaInfo(const ServedModel& model, const RequestOptions& options, int64_t now_unix_s,
                      std::string_view kind) {
  AnswerInfo info = InfoOf(model, options, now_unix_s);
  info.kind = kind;
  info.id = NewId("ollama-");
  return info;
}

/// "name", which Ollama gives a tag.
std::string TaggedName(const ServedModel& model) {
  return model.id.find(':') == std::string::npos ? model.id + ":latest" : model.id;
}

json::object DetailsOf(const ServedModel& model) {
  const ModelDetails& details = model.details;
  json::array families;
  families.push_back(json::value(details.architecture));
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", details.architecture},
          {"families", std::move(families)},
          {"parameter_size", fmt::format("{:.1f}M", static_cast<double>(details.parameters) * 1e-6)},
          {"quantization_level", details.weight_type}};
}

json::object ModelEntry(const ServedModel& model) {
  return {{"name", TaggedName(model)},
          {"model", TaggedName(model)},
          {"modified_at", OllamaTime(model.created_unix_s)},
          {"size", model.details.file_bytes},
          {"digest", model.fingerprint},
          {"details", DetailsOf(model)}};
}

std::string ListBody(json::object entry) {
  json::array models;
  models.push_back(std::move(entry));
  return JsonText(json::object{{"models", std::move(models)}});
}

}  // namespace

absl::StatusOr<ChatRequest> ParseOllamaChat(std::string_view text, const RequestContext& context) {
  KVIST_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, context.json));
  KVIST_ASSIGN_OR_RETURN(const json::object* root, internal::RootObject(document));
  const Fields body(*root, "");
  ChatRequest request;
  KVIST_RETURN_IF_ERROR(internal::ReadModel(body, context.model_id));
  KVIST_RETURN_IF_ERROR(ReadOptions(body, context, request.options));
  KVIST_RETURN_IF_ERROR(ReadFormat(body, request.options.wish));
  KVIST_ASSIGN_OR_RETURN(const json::array* messages, body.ReadArray("messages"));
  if (messages == nullptr || messages->empty()) return body.Bad("messages", "is missing or empty");
  for (size_t i = 0; i < messages->size(); ++i) {
    KVIST_ASSIGN_OR_RETURN(const Fields message, FieldsOf((*messages)[i], Cat("messages[", i, "]")));
    KVIST_RETURN_IF_ERROR(ReadMessage(message, request.messages));
  }
  KVIST_ASSIGN_OR_RETURN(request.marks, TakeMarks(request.options.forget, request.messages));
  KVIST_RETURN_IF_ERROR(internal::ReadTools(body, request.tools, request.options.wish));  // The same as OpenAI's.
  KVIST_RETURN_IF_ERROR(ReadThink(body, request.template_extra));
  return request;
}

absl::StatusOr<std::variant<ChatRequest, CompletionRequest>> ParseOllamaGenerate(std::string_view text,
                                                                                 const RequestContext& context,
                                                                                 bool has_template) {
  using Either = std::variant<ChatRequest, CompletionRequest>;
  KVIST_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, context.json));
  KVIST_ASSIGN_OR_RETURN(const json::object* root, internal::RootObject(document));
  const Fields body(*root, "");
  RequestOptions options;
  KVIST_RETURN_IF_ERROR(internal::ReadModel(body, context.model_id));
  KVIST_RETURN_IF_ERROR(ReadOptions(body, context, options));
  KVIST_RETURN_IF_ERROR(ReadFormat(body, options.wish));
  KVIST_RETURN_IF_ERROR(RefuseImages(body));
  std::string prompt, system, suffix;
  bool raw = false;
  KVIST_RETURN_IF_ERROR(body.Read("prompt", prompt));
  KVIST_RETURN_IF_ERROR(body.Read("system", system));
  KVIST_RETURN_IF_ERROR(body.Read("suffix", suffix));
  KVIST_RETURN_IF_ERROR(body.Read("raw", raw));
  if (prompt.empty()) return body.Bad("prompt", "is missing or empty");
  if (!suffix.empty()) return body.Bad("suffix", "is not supported");
  for (const char* key : {"template", "context"}) {
    if (body.Find(key) != nullptr) return body.Bad(key, "is not supported; use /api/chat");
  }
  if (raw || !has_template) {
    if (!system.empty()) return body.Bad("system", "is not for a raw prompt");
    return Either(CompletionRequest{.options = std::move(options), .prompts = {std::move(prompt)}});
  }
  ChatRequest request{.options = std::move(options)};
  if (!system.empty()) request.messages.push_back(TextMessage("system", system));
  request.messages.push_back(TextMessage("user", prompt));
  KVIST_ASSIGN_OR_RETURN(request.marks, TakeMarks(request.options.forget, request.messages));
  KVIST_RETURN_IF_ERROR(ReadThink(body, request.template_extra));
  return Either(std::move(request));
}

absl::StatusOr<PreparedRequest> PrepareOllamaChat(const ServedModel& model, const PastStates& past,
                                                  std::string_view body, int64_t now_unix_s) {
  KVIST_ASSIGN_OR_RETURN(ChatRequest request, ParseOllamaChat(body, ContextOf(model, past)));
  KVIST_ASSIGN_OR_RETURN(PreparedRequest prepared, RenderChat(model, past, request, body.size(), now_unix_s));
  prepared.format = std::make_unique<OllamaFormat>(OllamaInfo(model, request.options, now_unix_s, "ollama_chat"),
                                                   OllamaFormat::Kind::kChat);
  return prepared;
}

absl::StatusOr<PreparedRequest> PrepareOllamaGenerate(const ServedModel& model, const PastStates& past,
                                                      std::string_view body, int64_t now_unix_s) {
  KVIST_ASSIGN_OR_RETURN(auto parsed, ParseOllamaGenerate(body, ContextOf(model, past), bool{model.encode_chat}));
  PreparedRequest prepared;
  const RequestOptions* options = nullptr;
  if (auto* chat = std::get_if<ChatRequest>(&parsed)) {
    KVIST_ASSIGN_OR_RETURN(prepared, RenderChat(model, past, *chat, body.size(), now_unix_s));
    options = &chat->options;
  } else {
    auto& completion = std::get<CompletionRequest>(parsed);
    KVIST_ASSIGN_OR_RETURN(prepared, EncodeCompletion(model, completion, past.stop));
    options = &completion.options;
  }
  prepared.format = std::make_unique<OllamaFormat>(OllamaInfo(model, *options, now_unix_s, "ollama_generate"),
                                                   OllamaFormat::Kind::kGenerate);
  return prepared;
}

std::string OllamaTagsBody(const ServedModel& model) {
  return ListBody(ModelEntry(model));
}

std::string OllamaRunningBody(const ServedModel& model) {
  json::object entry = ModelEntry(model);
  entry["expires_at"] = "9999-12-31T23:59:59Z";  // It stays while the server runs.
  entry["size_vram"] = 0;
  return ListBody(std::move(entry));
}

std::string OllamaVersionBody() {
  return JsonText(json::object{{"version", KVIST_VERSION}});
}

absl::StatusOr<std::string> OllamaShowBody(const ServedModel& model, std::string_view text) {
  KVIST_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text));
  KVIST_ASSIGN_OR_RETURN(const json::object* root, internal::RootObject(document));
  const Fields body(*root, "");
  KVIST_RETURN_IF_ERROR(internal::ReadModel(body, model.id));
  const ModelDetails& details = model.details;
  json::array capabilities;
  capabilities.emplace_back("completion");
  if (model.encode_chat && model.tools.style != CallStyle::kNone) capabilities.emplace_back("tools");
  return JsonText(json::object{{"modelfile", ""},
                               {"parameters", ""},
                               {"template", details.chat_template},
                               {"details", DetailsOf(model)},
                               {"model_info",
                                {{"general.architecture", details.architecture},
                                 {"general.parameter_count", details.parameters},
                                 {Cat(details.architecture, ".context_length"), model.context_tokens_max}}},
                               {"capabilities", std::move(capabilities)},
                               {"modified_at", OllamaTime(model.created_unix_s)}});
}

}  // namespace kvist::serve
