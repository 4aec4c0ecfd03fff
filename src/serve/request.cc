#include "serve/request.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <openssl/sha.h>

#include "base/status.h"
#include "serve/api_error.h"
#include "serve/retain.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

/// Of "kvist" in the body.
constexpr std::string_view kOwnFields[] = {"cache_salt",   "priority", "session", "keep_tool_results", "keep_ephemeral",
                                           "keep_turns",   "drop",     "capsule", "restore",           "retain",
                                           "forget_below", "ttft_ms",  "tpot_ms"};
/// Of a range in "kvist.drop".
constexpr std::string_view kRangeFields[] = {"begin", "end", "at", "reposition"};
constexpr size_t kOperationsMax = 4096;
constexpr int64_t kStopStringsMax = 16;
constexpr int64_t kStopTokensMax = 256;
constexpr size_t kStopBytesMax = 1024;  // Looking for a stop string costs its length at every token.
constexpr uint32_t kCompletionTokensDefault = 16;
constexpr int64_t kChoicesMax = 128;

absl::StatusOr<const json::object*> RootObject(const JsonDocument& document) {
  if (!document.root().is_object()) {
    return absl::InvalidArgumentError(
        Cat("the request body must be a JSON object, not ", JsonKindName(document.root())));
  }
  return &document.root().get_object();
}

absl::Status ReadModel(const Fields& body, std::string_view served) {
  std::string model;
  KVIST_RETURN_IF_ERROR(body.Read("model", model));
  if (model.empty() || model == served) return absl::OkStatus();
  return WithCode(
      UnknownParam("model", Cat("the model '", Shortened(model), "' is not served here; '", served, "' is")),
      "model_not_found");
}

absl::Status ReadStream(const Fields& body, RequestOptions& options) {
  KVIST_RETURN_IF_ERROR(body.Read("stream", options.stream));
  KVIST_ASSIGN_OR_RETURN(const json::object* given, body.ReadObject("stream_options"));
  if (given == nullptr) return absl::OkStatus();
  if (!options.stream) return body.Bad("stream_options", "is only allowed when 'stream' is true");
  return Fields(*given, "stream_options").Read("include_usage", options.include_usage);
}

absl::Status ReadSampling(const Fields& body, RequestOptions& options) {
  step::Sampling& sampling = options.generation.sampling;
  KVIST_RETURN_IF_ERROR(body.Read("temperature", 0, 2, sampling.temperature));
  KVIST_RETURN_IF_ERROR(body.Read("top_p", 0, 1, sampling.top_p));
  KVIST_RETURN_IF_ERROR(body.Read("min_p", 0, 1, sampling.min_p));
  int64_t top_k = sampling.top_k;  // Other servers write "off" as -1.
  KVIST_RETURN_IF_ERROR(body.Read("top_k", -1, INT32_MAX, top_k));
  sampling.top_k = static_cast<uint32_t>(std::max<int64_t>(top_k, 0));
  KVIST_RETURN_IF_ERROR(body.Read("repeat_penalty", 0.01, 100, sampling.repetition_penalty));
  KVIST_RETURN_IF_ERROR(body.Read("repetition_penalty", 0.01, 100, sampling.repetition_penalty));
  KVIST_RETURN_IF_ERROR(body.Read("presence_penalty", -2, 2, sampling.presence_penalty));
  KVIST_RETURN_IF_ERROR(body.Read("frequency_penalty", -2, 2, sampling.frequency_penalty));
  if (body.Find("seed") != nullptr) {
    int64_t seed = 0;
    KVIST_RETURN_IF_ERROR(body.Read("seed", INT64_MIN, INT64_MAX, seed));
    options.seed = static_cast<uint64_t>(seed);
  }
  return absl::OkStatus();
}

absl::Status ReadLogitBias(const Fields& body, uint32_t vocab_size, std::vector<step::TokenBias>& biases) {
  KVIST_ASSIGN_OR_RETURN(const json::object* given, body.ReadObject("logit_bias"));
  if (given == nullptr) return absl::OkStatus();
  for (const auto& [key, value] : *given) {
    const std::string name = Cat("logit_bias.", Shortened(key));
    uint32_t token = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    // One spelling per token, so that none comes twice.
    const bool canonical = error == std::errc() && end == key.data() + key.size() && (key.size() == 1 || key[0] != '0');
    if (!canonical || token >= vocab_size) {
      return BadParam("logit_bias", Cat("'", name, "': the key must be a token id below ", vocab_size));
    }
    KVIST_ASSIGN_OR_RETURN(const double bias, NumberOf(value, name, -100, 100));
    biases.push_back({TokenId{token}, static_cast<float>(bias)});
  }
  return absl::OkStatus();
}

absl::Status AddStop(const json::value& value, std::string_view name, std::vector<std::string>& stops) {
  if (!value.is_string()) return BadParam(name, Cat("'", name, "' must be a string, not ", JsonKindName(value)));
  const json::string& text = value.get_string();
  if (text.size() > kStopBytesMax) return BadParam(name, Cat("'", name, "' is longer than ", kStopBytesMax, " bytes"));
  if (!text.empty()) stops.emplace_back(text.begin(), text.end());
  return absl::OkStatus();
}

absl::Status ReadStops(const Fields& body, uint32_t vocab_size, engine::GenerationRequest& generation) {
  const json::value* stop = body.Find("stop");
  if (stop != nullptr && stop->is_array()) {
    const json::array& list = stop->get_array();
    if (list.size() > kStopStringsMax) return body.Bad("stop", Cat("may have at most ", kStopStringsMax, " strings"));
    for (size_t i = 0; i < list.size(); ++i) {
      KVIST_RETURN_IF_ERROR(AddStop(list[i], Cat("stop[", i, "]"), generation.stop));
    }
  } else if (stop != nullptr) {
    if (!stop->is_string())
      return body.Bad("stop", Cat("must be a string or an array of strings, not ", JsonKindName(*stop)));
    KVIST_RETURN_IF_ERROR(AddStop(*stop, "stop", generation.stop));
  }
  KVIST_ASSIGN_OR_RETURN(const json::array* tokens, body.ReadArray("stop_token_ids"));
  if (tokens != nullptr) {
    if (tokens->size() > kStopTokensMax)
      return body.Bad("stop_token_ids", Cat("may have at most ", kStopTokensMax, " ids"));
    for (size_t i = 0; i < tokens->size(); ++i) {
      KVIST_ASSIGN_OR_RETURN(const int64_t id,
                             IntegerOf((*tokens)[i], Cat("stop_token_ids[", i, "]"), 0, int64_t{vocab_size} - 1));
      generation.stop_tokens.push_back(TokenId{static_cast<uint32_t>(id)});
    }
  }
  return body.Read("ignore_eos", generation.ignore_eos);
}

/// First eight bytes of SHA-256; 0 is everybody's namespace and no salt's.
uint64_t NamespaceOf(std::string_view salt) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(salt.data()), salt.size(), digest);
  uint64_t hash = 0;
  for (int i = 0; i < 8; ++i) hash = hash << 8 | digest[i];
  return hash == 0 ? 1 : hash;
}

/// "drop": operations on a prompt of tokens, as the engine has them.
absl::Status ReadOperations(const Fields& own, std::vector<kv::CacheOp>& ops) {
  KVIST_ASSIGN_OR_RETURN(const json::array* given, own.ReadArray("drop"));
  if (given == nullptr) return absl::OkStatus();
  if (given->size() > kOperationsMax) return own.Bad("drop", Cat("may have at most ", kOperationsMax, " ranges"));
  for (size_t i = 0; i < given->size(); ++i) {
    const std::string place = Cat(own.NameOf("drop"), "[", i, "]");
    if (!(*given)[i].is_object()) {
      return BadParam(place, Cat("'", place, "' must be an object, not ", JsonKindName((*given)[i])));
    }
    const Fields range((*given)[i].get_object(), place);
    KVIST_RETURN_IF_ERROR(range.RefuseUnknown(kRangeFields));
    for (const std::string_view needed : {"begin", "end", "at"}) {
      if (range.Find(needed) == nullptr) return range.Bad(needed, "is missing");
    }
    int64_t begin = 0, end = 0, at = 0;
    kv::CacheOp op;
    KVIST_RETURN_IF_ERROR(range.Read("begin", 0, INT32_MAX, begin));
    KVIST_RETURN_IF_ERROR(range.Read("end", 0, INT32_MAX, end));
    KVIST_RETURN_IF_ERROR(range.Read("at", 0, INT32_MAX, at));
    KVIST_RETURN_IF_ERROR(range.Read("reposition", op.reposition));
    op.begin = static_cast<uint32_t>(begin);
    op.end = static_cast<uint32_t>(end);
    op.at = static_cast<uint32_t>(at);
    ops.push_back(op);
  }
  const std::string fault = kv::FindFault(ops);
  return fault.empty() ? absl::OkStatus() : own.Bad("drop", Cat("cannot be done: ", fault));
}

/// Wished times, as the engine has them.
absl::Status ReadDeadlines(const Fields& own, engine::GenerationRequest& generation) {
  constexpr double kMsMax = 86'400'000;
  float first_ms = 0, next_ms = 0;
  KVIST_RETURN_IF_ERROR(own.Read("ttft_ms", 0, kMsMax, first_ms));
  KVIST_RETURN_IF_ERROR(own.Read("tpot_ms", 0, kMsMax, next_ms));
  generation.first_token_ns = static_cast<int64_t>(double{first_ms} * 1e6);
  generation.next_token_ns = static_cast<int64_t>(double{next_ms} * 1e6);
  return absl::OkStatus();
}

/// A field that is not known is refused here: who asks for a service that is not given must learn of it.
absl::Status ReadOwnFields(const Fields& body, const RequestContext& context, RequestOptions& options) {
  engine::GenerationRequest& generation = options.generation;
  std::string salt;
  KVIST_RETURN_IF_ERROR(body.Read("cache_salt", salt));  // vLLM's place for it.
  KVIST_ASSIGN_OR_RETURN(const json::object* given, body.ReadObject("kvist"));
  const json::object none;
  const Fields own(given == nullptr ? none : *given, "kvist");
  KVIST_RETURN_IF_ERROR(own.RefuseUnknown(kOwnFields));
  KVIST_RETURN_IF_ERROR(own.Read("cache_salt", salt));
  if (!salt.empty()) generation.cache_namespace = NamespaceOf(salt);
  KVIST_RETURN_IF_ERROR(internal::ReadCapsule(body, own, context, options));
  KVIST_RETURN_IF_ERROR(ReadForgetRules(own, options.forget));
  if (options.restored && own.Find("drop") != nullptr) {
    return own.Bad("drop", "cannot be combined with 'kvist.restore': the capsule has its operations");
  }
  KVIST_RETURN_IF_ERROR(ReadOperations(own, generation.ops));
  KVIST_RETURN_IF_ERROR(ReadRetain(own, RetainForm::kRanges, generation.retain));
  int64_t priority = generation.priority;
  KVIST_RETURN_IF_ERROR(own.Read("priority", 0, UINT8_MAX, priority));
  KVIST_RETURN_IF_ERROR(ReadDeadlines(own, generation));
  generation.priority = static_cast<uint8_t>(priority);
  return absl::OkStatus();
}

absl::Status ReadChoices(const Fields& body, RequestOptions& options) {
  int64_t choices = 1;
  KVIST_RETURN_IF_ERROR(body.Read("n", 1, kChoicesMax, choices));
  options.choices = static_cast<uint32_t>(choices);
  int64_t best_of = choices;
  KVIST_RETURN_IF_ERROR(body.Read("best_of", 1, INT32_MAX, best_of));
  if (best_of != choices) return body.Bad("best_of", "other than 'n' is not supported: answers are not ranked here");
  return absl::OkStatus();
}

absl::Status RefuseUnsupported(const Fields& body) {
  KVIST_ASSIGN_OR_RETURN(const json::object* format, body.ReadObject("response_format"));
  if (format != nullptr) {
    std::string type = "text";
    KVIST_RETURN_IF_ERROR(Fields(*format, "response_format").Read("type", type));
    if (type != "text")
      return body.Bad("response_format", Cat("of type '", Shortened(type), "' is not supported yet; only 'text' is"));
  }
  for (const char* key : {"functions", "function_call"}) {
    if (body.Find(key) != nullptr) return body.Bad(key, "is not supported; use 'tools'");
  }
  if (body.Find("audio") != nullptr) return body.Bad("audio", "is not supported; the model writes text only");
  return absl::OkStatus();
}

/// The newer name wins. @param min  0 where writing nothing makes sense.
absl::Status ReadMaxTokens(const Fields& body, int64_t min, uint32_t& max_tokens) {
  int64_t count = max_tokens;
  KVIST_RETURN_IF_ERROR(body.Read("max_tokens", min, UINT32_MAX, count));
  KVIST_RETURN_IF_ERROR(body.Read("max_completion_tokens", min, UINT32_MAX, count));
  max_tokens = static_cast<uint32_t>(count);
  return absl::OkStatus();
}

absl::Status ReadChatLogprobs(const Fields& body, RequestOptions& options) {
  KVIST_RETURN_IF_ERROR(body.Read("logprobs", options.logprobs));
  int64_t top = 0;
  KVIST_RETURN_IF_ERROR(body.Read("top_logprobs", 0, 20, top));
  if (top > 0 && !options.logprobs) return body.Bad("top_logprobs", "is only allowed when 'logprobs' is true");
  options.generation.sampling.want_logprobs = options.logprobs;
  options.generation.sampling.logprobs_count = static_cast<uint32_t>(top);
  return absl::OkStatus();
}

absl::Status ReadCompletionLogprobs(const Fields& body, RequestOptions& options) {
  const json::value* given = body.Find("logprobs");
  if (given == nullptr) return absl::OkStatus();
  KVIST_ASSIGN_OR_RETURN(const int64_t count, IntegerOf(*given, "logprobs", 0, 5));
  options.logprobs = options.generation.sampling.want_logprobs = true;
  options.generation.sampling.logprobs_count = static_cast<uint32_t>(count);
  return absl::OkStatus();
}

absl::Status ReadPromptTokens(const json::array& list, uint32_t vocab_size, std::vector<TokenId>& tokens) {
  tokens.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    KVIST_ASSIGN_OR_RETURN(const int64_t id, IntegerOf(list[i], Cat("prompt[", i, "]"), 0, int64_t{vocab_size} - 1));
    tokens.push_back(TokenId{static_cast<uint32_t>(id)});
  }
  return absl::OkStatus();
}

/// A string, an array of token ids, or an array of exactly one of these.
absl::Status ReadPrompt(const Fields& body, uint32_t vocab_size, CompletionRequest& request) {
  const json::value* prompt = body.Find("prompt");
  if (prompt == nullptr && request.options.restored) return absl::OkStatus();
  if (prompt == nullptr) return body.Bad("prompt", "is missing");
  if (prompt->is_array() && !prompt->get_array().empty() && !prompt->get_array().front().is_number()) {
    if (prompt->get_array().size() > 1)
      return body.Bad("prompt", "with several prompts is not supported yet; send several requests");
    prompt = &prompt->get_array().front();
  }
  if (prompt->is_string()) {
    request.prompt = std::string(prompt->get_string().begin(), prompt->get_string().end());
    return absl::OkStatus();
  }
  if (!prompt->is_array()) {
    return body.Bad("prompt", Cat("must be a string or an array of token ids, not ", JsonKindName(*prompt)));
  }
  if (prompt->get_array().empty()) return body.Bad("prompt", "is empty");
  std::vector<TokenId> tokens;
  KVIST_RETURN_IF_ERROR(ReadPromptTokens(prompt->get_array(), vocab_size, tokens));
  request.prompt = std::move(tokens);
  return absl::OkStatus();
}

}  // namespace

absl::Status internal::ReadOptions(const Fields& body, const RequestContext& context, RequestOptions& options) {
  KVIST_RETURN_IF_ERROR(ReadModel(body, context.model_id));
  KVIST_RETURN_IF_ERROR(ReadStream(body, options));
  KVIST_RETURN_IF_ERROR(ReadChoices(body, options));
  KVIST_RETURN_IF_ERROR(RefuseUnsupported(body));
  KVIST_RETURN_IF_ERROR(ReadOwnFields(body, context, options));
  KVIST_RETURN_IF_ERROR(ReadSampling(body, options));
  KVIST_RETURN_IF_ERROR(ReadLogitBias(body, context.vocab_size, options.generation.biases));
  KVIST_RETURN_IF_ERROR(ReadStops(body, context.vocab_size, options.generation));
  std::string user;  // Accepted and not used; still a string.
  return body.Read("user", user);
}

absl::StatusOr<ChatRequest> ParseChatRequest(std::string_view text, const RequestContext& context) {
  KVIST_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, context.json));
  KVIST_ASSIGN_OR_RETURN(const json::object* root, RootObject(document));
  const Fields body(*root, "");
  ChatRequest request;
  KVIST_RETURN_IF_ERROR(internal::ReadOptions(body, context, request.options));
  KVIST_RETURN_IF_ERROR(ReadMaxTokens(body, 1, request.options.generation.max_tokens));
  KVIST_RETURN_IF_ERROR(ReadChatLogprobs(body, request.options));
  const bool goes_on = request.options.restored && body.Find("messages") == nullptr;
  if (!goes_on) KVIST_RETURN_IF_ERROR(internal::ReadMessages(body, request.messages));
  if (!request.options.restored && !request.options.generation.ops.empty()) {
    return BadParam("kvist.drop",
                    "'kvist.drop' is for /v1/completions; in a chat mark messages with \"kvist\": {\"drop\": true}");
  }
  for (const kv::RetainRange& range : request.options.generation.retain) {
    if (range.begin == 0 && range.end == kv::kToTheEnd) continue;
    return BadParam("kvist.retain",
                    "ranges in 'kvist.retain' are for /v1/completions; in a chat mark messages with \"kvist\": "
                    "{\"retain\": ...}");
  }
  KVIST_ASSIGN_OR_RETURN(request.marks, TakeMarks(request.options.forget, request.messages));
  KVIST_RETURN_IF_ERROR(internal::ReadTools(body, request.tools));
  std::string effort;
  KVIST_RETURN_IF_ERROR(body.Read("reasoning_effort", effort));
  if (!effort.empty()) request.template_extra["reasoning_effort"] = effort;
  KVIST_ASSIGN_OR_RETURN(const json::object* extra, body.ReadObject("chat_template_kwargs"));
  if (extra != nullptr) {
    for (const auto& member : *extra) {
      request.template_extra[member.key()] = json::value(member.value(), json::storage_ptr());
    }
  }
  return request;
}

absl::StatusOr<CompletionRequest> ParseCompletionRequest(std::string_view text, const RequestContext& context) {
  KVIST_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, context.json));
  KVIST_ASSIGN_OR_RETURN(const json::object* root, RootObject(document));
  const Fields body(*root, "");
  CompletionRequest request;
  KVIST_RETURN_IF_ERROR(internal::ReadOptions(body, context, request.options));
  request.options.generation.max_tokens = kCompletionTokensDefault;
  KVIST_RETURN_IF_ERROR(ReadMaxTokens(body, 0, request.options.generation.max_tokens));
  KVIST_RETURN_IF_ERROR(ReadCompletionLogprobs(body, request.options));
  KVIST_RETURN_IF_ERROR(ReadPrompt(body, context.vocab_size, request));
  const ForgetRules& forget = request.options.forget;
  if (!forget.session.empty() || forget.keep_tool_results >= 0 || forget.keep_turns_last >= 0 || forget.forget_below) {
    return BadParam(
        "kvist.session",
        "'kvist.session' and rules for messages are for /v1/chat/completions; here name ranges in 'kvist.drop'");
  }
  std::string suffix;
  KVIST_RETURN_IF_ERROR(body.Read("suffix", suffix));
  if (!suffix.empty()) return body.Bad("suffix", "is not supported yet");
  KVIST_RETURN_IF_ERROR(body.Read("echo", request.echo));
  if (request.echo && request.options.logprobs)
    return body.Bad("echo", "together with 'logprobs' is not supported yet");
  if (request.echo && request.options.restored) return body.Bad("echo", "cannot be combined with 'kvist.restore'");
  return request;
}

}  // namespace kvist::serve
