#include "serve/request_testutil.h"

#include <cmath>
#include <set>

#include "base/check.h"
#include "modelfile/tokenizer_utf8.h"
#include "serve/api_error.h"
#include "serve/json_output.h"
#include "serve/messages_api.h"
#include "serve/ollama_api.h"
#include "serve/request.h"
#include "serve/responses_api.h"
#include "serve/retain.h"

namespace kvist::serve {
namespace {

namespace json = boost::json;

constexpr uint32_t kVocab = 1000;
const RequestContext kContext{
    .model_id = "fuzz", .vocab_size = kVocab, .json = {.depth_max = 64, .memory_bytes_max = 16u << 20}};

bool Within(float value, float min, float max) {
  return value >= min && value <= max;
}

void CheckError(const absl::Status& status) {
  KVIST_CHECK(absl::IsInvalidArgument(status) || absl::IsNotFound(status));
  const ApiError error = ErrorFromStatus(status);
  KVIST_CHECK(error.http_status == 400 || error.http_status == 404);
  KVIST_CHECK(!error.message.empty() && error.message.size() < 1000);
  // Whatever the client sent, the answer is JSON that clients can read.
  json::error_code not_json;
  json::parse(ErrorBody(error), not_json);
  KVIST_CHECK(!not_json);
}

void CheckOptions(const RequestOptions& options) {
  const engine::GenerationRequest& generation = options.generation;
  const step::Sampling& sampling = generation.sampling;
  KVIST_CHECK(Within(sampling.temperature, 0, 2) && Within(sampling.top_p, 0, 1) && Within(sampling.min_p, 0, 1));
  KVIST_CHECK(Within(sampling.repetition_penalty, 0.009f, 100));
  KVIST_CHECK(Within(sampling.presence_penalty, -2, 2) && Within(sampling.frequency_penalty, -2, 2));
  KVIST_CHECK(sampling.top_k <= INT32_MAX && sampling.logprobs_count <= 20);
  KVIST_CHECK(sampling.want_logprobs == options.logprobs && (options.logprobs || sampling.logprobs_count == 0));
  KVIST_CHECK(options.stream || !options.include_usage);
  std::set<uint32_t> biased;
  for (const step::TokenBias& bias : generation.biases) {
    KVIST_CHECK(bias.token.value < kVocab && Within(bias.bias, -100, 100));
    KVIST_CHECK(biased.insert(bias.token.value).second);
  }
  KVIST_CHECK(generation.stop.size() <= 16);
  for (const std::string& stop : generation.stop) {
    KVIST_CHECK(!stop.empty() && stop.size() <= 1024 && ValidUtf8Prefix(stop) == stop.size());
  }
  for (const TokenId token : generation.stop_tokens) KVIST_CHECK(token.value < kVocab);
  KVIST_CHECK(generation.prompt.empty());
  KVIST_CHECK(generation.retain.size() <= kRetainRangesMax && kv::FindFault(generation.retain, INT32_MAX).empty());
}

void CheckChat(const ChatRequest& request) {
  CheckOptions(request.options);
  KVIST_CHECK(!request.messages.empty());
  for (const json::value& message : request.messages) {
    const json::string& role = message.at("role").as_string();
    KVIST_CHECK(role == "system" || role == "user" || role == "assistant" || role == "tool");
    KVIST_CHECK(message.at("content").is_string());
    const json::value* calls = message.as_object().if_contains("tool_calls");
    if (calls == nullptr) continue;
    KVIST_CHECK(role == "assistant");
    for (const json::value& call : calls->as_array()) KVIST_CHECK(call.at("function").at("arguments").is_object());
  }
  for (const MessageMarks::Retained& retained : request.marks.retained) {
    KVIST_CHECK(retained.message < request.messages.size());
    KVIST_CHECK(kv::FindFault(std::span(&retained.wish, 1), 0).empty());
  }
  KVIST_CHECK(request.tools.is_null() || !request.tools.as_array().empty());
}

void CheckCompletion(const CompletionRequest& request) {
  CheckOptions(request.options);
  KVIST_CHECK(!request.prompts.empty());
  for (const TextOrTokens& prompt : request.prompts) {
    if (const auto* tokens = std::get_if<std::vector<TokenId>>(&prompt)) {
      KVIST_CHECK(!tokens->empty());
      for (const TokenId token : *tokens) KVIST_CHECK(token.value < kVocab);
    } else {
      const std::string& text = std::get<std::string>(prompt);
      KVIST_CHECK(ValidUtf8Prefix(text) == text.size());
    }
  }
}

}  // namespace

bool CheckProtocolRequest(std::string_view body) {
  bool any = false;
  const auto check = [&](absl::StatusOr<ChatRequest> chat) {
    any = any || chat.ok();
    chat.ok() ? CheckChat(*chat) : CheckError(chat.status());
  };
  check(ParseMessagesRequest(body, kContext));
  check(ParseMessagesRequest(body, kContext, /*counts_only=*/true));
  check(ParseOllamaChat(body, kContext));
  for (const bool has_template : {true, false}) {
    auto generate = ParseOllamaGenerate(body, kContext, has_template);
    if (generate.ok() && std::holds_alternative<CompletionRequest>(*generate)) {
      CheckCompletion(std::get<CompletionRequest>(*generate));
      any = true;
    } else {
      check(generate.ok() ? absl::StatusOr<ChatRequest>(std::get<ChatRequest>(*std::move(generate)))
                          : absl::StatusOr<ChatRequest>(generate.status()));
    }
  }
  const auto find = [](uint64_t, std::string_view) -> std::shared_ptr<const StoredResponse> { return nullptr; };
  auto response = ParseResponsesRequest(body, kContext, find);
  if (response.ok()) JsonText(response->shown);  // What is shown again is JSON that can be written.
  check(response.ok() ? absl::StatusOr<ChatRequest>(std::move(response->chat))
                      : absl::StatusOr<ChatRequest>(response.status()));
  return any;
}

bool CheckRequest(std::string_view body) {
  const absl::StatusOr<ChatRequest> chat = ParseChatRequest(body, kContext);
  if (chat.ok()) {
    CheckChat(*chat);
    KVIST_CHECK(chat->options.generation.max_tokens > 0);
  } else {
    CheckError(chat.status());
  }
  const absl::StatusOr<CompletionRequest> completion = ParseCompletionRequest(body, kContext);
  if (completion.ok()) {
    CheckCompletion(*completion);
  } else {
    CheckError(completion.status());
  }
  return chat.ok() || completion.ok();
}

}  // namespace kvist::serve
