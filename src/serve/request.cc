#include "serve/request.h"

#include <algorithm>
#include <charconv>

#include "base/status.h"
#include "serve/access.h"
#include "serve/api_error.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

constexpr size_t kStopTokensMax = 256;
constexpr uint32_t kCompletionTokensDefault = 16;
constexpr int64_t kChoicesMax = 128;
constexpr size_t kAnswersMax = 512;  ///< Prompts times choices.

absl::Status ReadStream(const Fields& body, RequestOptions& options) {
  KVIST_RETURN_IF_ERROR(body.Read("stream", options.stream));
  KVIST_ASSIGN_OR_RETURN(const json::object* given, body.ReadObject("stream_options"));
  if (given == nullptr) return absl::OkStatus();
  if (!options.stream) return body.Bad("stream_options", "is only allowed when 'stream' is true");
  return Fields(*given, "stream_options").Read("include_usage", options.include_usage);
}

absl::Status ReadLogitBias(const Fields& body, const RequestContext& context, std::vector<step::TokenBias>& biases) {
  KVIST_ASSIGN_OR_RETURN(const json::object* given, body.ReadObject("logit_bias"));
  if (given == nullptr || given->empty()) return absl::OkStatus();
  if (!context.may_bias) {
    return body.Bad("logit_bias", "changes nothing here: an emulated device makes its tokens up");
  }
  const uint32_t vocab_size = context.vocab_size;
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

absl::Status ReadStops(const Fields& body, uint32_t vocab_size, engine::GenerationRequest& generation) {
  KVIST_RETURN_IF_ERROR(internal::ReadStopStrings(body, "stop", generation.stop));
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

/// @param name  of the prompt, for errors
absl::Status ReadOnePrompt(const json::value& prompt, const std::string& name, uint32_t vocab_size,
                           CompletionRequest& request) {
  if (prompt.is_string()) {
    request.prompts.emplace_back(std::string(prompt.get_string().begin(), prompt.get_string().end()));
    return absl::OkStatus();
  }
  if (!prompt.is_array()) {
    return BadParam(name, Cat("'", name, "' must be a string or an array of token ids, not ", JsonKindName(prompt)));
  }
  if (prompt.get_array().empty()) return BadParam(name, Cat("'", name, "' is empty"));
  std::vector<TokenId> tokens;
  KVIST_RETURN_IF_ERROR(internal::ReadTokens(prompt.get_array(), name, vocab_size, tokens));
  request.prompts.emplace_back(std::move(tokens));
  return absl::OkStatus();
}

/// A string, an array of token ids, or an array of these.
absl::Status ReadPrompts(const Fields& body, uint32_t vocab_size, CompletionRequest& request) {
  const json::value* prompt = body.Find("prompt");
  if (prompt == nullptr && request.options.restored) {
    request.prompts.emplace_back();
    return absl::OkStatus();
  }
  if (prompt == nullptr) return body.Bad("prompt", "is missing");
  const bool several = prompt->is_array() && !prompt->get_array().empty() && !prompt->get_array().front().is_number();
  if (!several) return ReadOnePrompt(*prompt, "prompt", vocab_size, request);
  const json::array& list = prompt->get_array();
  if (list.size() * request.options.choices > kAnswersMax) {
    return body.Bad("prompt", Cat("asks for ", list.size() * request.options.choices, " answers, at most ", kAnswersMax,
                                  " are given at once"));
  }
  for (size_t i = 0; i < list.size(); ++i) {
    KVIST_RETURN_IF_ERROR(ReadOnePrompt(list[i], Cat("prompt[", i, "]"), vocab_size, request));
  }
  if (list.size() == 1) return absl::OkStatus();
  const engine::GenerationRequest& generation = request.options.generation;
  const bool ranges = std::ranges::any_of(
      generation.retain, [](const kv::RetainRange& range) { return range.begin != 0 || range.end != kv::kToTheEnd; });
  if (request.options.restored || !generation.ops.empty() || ranges) {
    return body.Bad("prompt", "must be a single one with 'kvist.restore', 'kvist.drop' and ranges in 'kvist.retain'");
  }
  return absl::OkStatus();
}

}  // namespace

/// First eight bytes of a SHA-256.
uint64_t CacheNamespaceOf(std::string_view cache_space, std::string_view salt) {
  if (cache_space.empty() && salt.empty()) return 0;
  KeyDigest digest = DigestOf(salt);
  if (!cache_space.empty()) {
    const KeyDigest space = DigestOf(cache_space);
    std::string both(space.begin(), space.end());
    both.append(digest.begin(), digest.end());
    digest = DigestOf(both);
  }
  uint64_t hash = 0;
  for (int i = 0; i < 8; ++i) hash = hash << 8 | digest[i];
  return hash == 0 ? 1 : hash;
}

absl::Status internal::ReadOptions(const Fields& body, const RequestContext& context, RequestOptions& options) {
  KVIST_RETURN_IF_ERROR(ReadModel(body, context.model_id));
  KVIST_RETURN_IF_ERROR(ReadStream(body, options));
  KVIST_RETURN_IF_ERROR(ReadChoices(body, options));
  KVIST_RETURN_IF_ERROR(RefuseUnsupported(body));
  KVIST_RETURN_IF_ERROR(internal::ReadOutputWish(body, options.wish));
  KVIST_RETURN_IF_ERROR(ReadOwnFields(body, context, options));
  KVIST_RETURN_IF_ERROR(ReadSampling(body, options));
  KVIST_RETURN_IF_ERROR(ReadLogitBias(body, context, options.generation.biases));
  KVIST_RETURN_IF_ERROR(ReadStops(body, context.vocab_size, options.generation));
  std::string user;  // Accepted and not used; still a string.
  return body.Read("user", user);
}

absl::StatusOr<ChatRequest> ParseChatRequest(std::string_view text, const RequestContext& context) {
  KVIST_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, context.json));
  KVIST_ASSIGN_OR_RETURN(const json::object* root, internal::RootObject(document));
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
  KVIST_RETURN_IF_ERROR(internal::ReadTools(body, request.tools, request.options.wish));
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
  KVIST_ASSIGN_OR_RETURN(const json::object* root, internal::RootObject(document));
  const Fields body(*root, "");
  CompletionRequest request;
  KVIST_RETURN_IF_ERROR(internal::ReadOptions(body, context, request.options));
  request.options.generation.max_tokens = kCompletionTokensDefault;
  KVIST_RETURN_IF_ERROR(ReadMaxTokens(body, 0, request.options.generation.max_tokens));
  KVIST_RETURN_IF_ERROR(ReadCompletionLogprobs(body, request.options));
  KVIST_RETURN_IF_ERROR(ReadPrompts(body, context.vocab_size, request));
  const ForgetRules& forget = request.options.forget;
  if (!forget.session.empty() || request.options.frames.any() || forget.keep_tool_results >= 0 ||
      forget.keep_turns_last >= 0 || forget.forget_below) {
    return BadParam(
        "kvist.session",
        "'kvist.session' and rules for messages are for /v1/chat/completions; here name ranges in 'kvist.drop'");
  }
  std::string suffix;
  KVIST_RETURN_IF_ERROR(body.Read("suffix", suffix));
  if (!suffix.empty()) return body.Bad("suffix", "is not supported yet");
  KVIST_RETURN_IF_ERROR(body.Read("echo", request.echo));
  if (request.echo && request.options.restored) return body.Bad("echo", "cannot be combined with 'kvist.restore'");
  request.options.generation.want_prompt_logprobs = request.echo && request.options.logprobs;
  return request;
}

std::string CompletionRequest::PlaceOf(size_t index) const {
  return prompts.size() == 1 ? "prompt" : Cat("prompt[", index, "]");
}

}  // namespace kvist::serve
