#include "serve/reply.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <openssl/rand.h>

#include "base/check.h"
#include "base/status.h"
#include "modelfile/tokenizer_utf8.h"
#include "serve/json_output.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

/// To six decimals. JSON has no infinity; -9999 is what OpenAI documents for "practically impossible".
double Logprob(float value) {
  return std::isfinite(value) ? std::round(double{value} * 1e6) / 1e6 : -9999.0;
}

/// A token's bytes as text; parts of characters become U+FFFD ("bytes" has the truth).
std::string TextOf(std::string bytes) {
  std::string text;
  TakeCharacters(bytes, /*last=*/true, text);
  return text;
}

json::object TokenLogprobObject(const Tokenizer& tokenizer, TokenId token, float logprob) {
  const std::string raw = tokenizer.TokenBytes(token, /*render_control=*/true);
  json::array bytes;
  bytes.reserve(raw.size());
  for (const char c : raw) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", TextOf(raw)}, {"logprob", Logprob(logprob)}, {"bytes", std::move(bytes)}};
}

json::array ArrayOf(json::value element) {
  json::array array;
  array.push_back(std::move(element));
  return array;
}

json::object UsageObject(const engine::Usage& usage) {
  json::object details = {{"cached_tokens", usage.cached_tokens}};
  if (usage.dropped_tokens > 0) details["dropped_tokens"] = usage.dropped_tokens;  // Our own.
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.output_tokens},
          {"total_tokens", uint64_t{usage.prompt_tokens} + usage.output_tokens},
          {"prompt_tokens_details", std::move(details)}};
}

double Rounded(double value) {
  return std::round(value * 1000) / 1000;
}

json::value OrNull(const std::optional<double>& value) {
  if (!value.has_value() || !std::isfinite(*value)) return nullptr;
  return Rounded(*value);
}

/// What each message got, or that it is gone and why.
json::array AttentionArray(const Turn& turn) {
  json::array messages;
  for (const TurnMessage& message : turn.messages) {
    json::object entry = {{"message", message.index}, {"tokens", message.tokens.end - message.tokens.begin}};
    if (message.in_view()) {
      entry["attention"] = message.attention < 0 ? json::value() : Rounded(double{message.attention});
      entry["faint_turns"] = message.state.faint_turns;
    } else {
      entry["dropped"] = message.dropped ? "mark" : "attention";
    }
    messages.push_back(std::move(entry));
  }
  return messages;
}

json::object OwnObject(const engine::Usage& usage, const ReplyTimings& timings, const Turn* turn) {
  json::object own = {{"ttft_ms", OrNull(timings.ttft_ms)},
                      {"prompt_ms", OrNull(timings.prompt_ms)},
                      {"total_ms", Rounded(timings.total_ms)},
                      {"output_tokens_per_second", OrNull(timings.output_tokens_per_s)}};
  if (usage.pinned_blocks + usage.not_pinned_blocks > 0) {
    own["retained"] = {{"pinned_blocks", usage.pinned_blocks}, {"not_pinned_blocks", usage.not_pinned_blocks}};
  }
  if (turn != nullptr) own["messages"] = AttentionArray(*turn);
  return own;
}

json::object Head(const ReplyInfo& info, std::string_view object) {
  return {{"id", info.id},
          {"object", object},
          {"created", info.created_unix_s},
          {"model", info.model},
          {"system_fingerprint", info.fingerprint}};
}

void AddCapsule(json::object& choice, std::string_view capsule) {
  if (!capsule.empty()) choice["kvist"] = json::object{{"capsule", capsule}};
}

json::object ModelObject(const ModelInfo& model) {
  return {{"id", model.id},
          {"object", "model"},
          {"created", model.created_unix_s},
          {"owned_by", "kvist"},
          {"max_model_len", model.context_tokens_max}};
}

}  // namespace

std::string_view FinishReasonName(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kNone:
      break;
    case engine::FinishReason::kStop:
      return "stop";
    case engine::FinishReason::kLength:
      return "length";
    case engine::FinishReason::kCancelled:
      return "abort";
    case engine::FinishReason::kError:
      return "error";
  }
  return "none";
}

std::string ReplyWriter::Chunk(json::object choice) const {
  json::object body = Head(info_, info_.chat ? "chat.completion.chunk" : "text_completion");
  body["choices"] = ArrayOf(std::move(choice));
  if (info_.include_usage) body["usage"] = nullptr;
  return JsonText(body);
}

std::string ReplyWriter::BeginChunk() const {
  if (!info_.chat && info_.echo.empty()) return "";
  json::object choice = {{"index", index_}};
  if (info_.chat) {
    choice["delta"] = {{"role", "assistant"}, {"content", ""}};
  } else {
    choice["text"] = info_.echo;
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = nullptr;
  return Chunk(std::move(choice));
}

std::string ReplyWriter::TextChunk(const engine::GenerationEvent& event) {
  json::object choice = {{"index", index_}};
  if (info_.chat) {
    choice["delta"] = json::object{{"content", event.text}};
  } else {
    choice["text"] = event.text;
  }
  choice["logprobs"] = Logprobs(event.tokens);
  choice["finish_reason"] = nullptr;
  return Chunk(std::move(choice));
}

std::string ReplyWriter::FinishChunk(engine::FinishReason reason, std::string_view capsule) const {
  json::object choice = {{"index", index_}};
  if (info_.chat) {
    choice["delta"] = json::object();
  } else {
    choice["text"] = "";
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = FinishReasonName(reason);
  AddCapsule(choice, capsule);
  return Chunk(std::move(choice));
}

std::string UsageChunk(const ReplyInfo& info, const engine::Usage& usage, const ReplyTimings& timings,
                       const Turn* turn) {
  json::object body = Head(info, info.chat ? "chat.completion.chunk" : "text_completion");
  body["choices"] = json::array();
  body["usage"] = UsageObject(usage);
  body["kvist"] = OwnObject(usage, timings, turn);
  return JsonText(body);
}

json::object ReplyWriter::WholeChoice(std::string_view text, std::span<const engine::TokenEvent> tokens,
                                      engine::FinishReason reason, std::string_view capsule) {
  json::object choice = {{"index", index_}};
  if (info_.chat) {
    choice["message"] = {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}};
  } else {
    choice["text"] = Cat(info_.echo, text);
  }
  choice["logprobs"] = Logprobs(tokens);
  choice["finish_reason"] = FinishReasonName(reason);
  AddCapsule(choice, capsule);
  return choice;
}

std::string WholeBody(const ReplyInfo& info, json::array choices, const engine::Usage& usage,
                      const ReplyTimings& timings, const Turn* turn) {
  json::object body = Head(info, info.chat ? "chat.completion" : "text_completion");
  body["choices"] = std::move(choices);
  body["usage"] = UsageObject(usage);
  body["kvist"] = OwnObject(usage, timings, turn);
  return JsonText(body);
}

json::value ReplyWriter::Logprobs(std::span<const engine::TokenEvent> tokens) {
  if (!info_.logprobs) return nullptr;
  return info_.chat ? ChatLogprobs(tokens) : CompletionLogprobs(tokens);
}

json::value ReplyWriter::ChatLogprobs(std::span<const engine::TokenEvent> tokens) const {
  json::array content;
  for (const engine::TokenEvent& token : tokens) {
    json::object entry = TokenLogprobObject(tokenizer_, token.token, token.logprob);
    json::array top;
    for (const step::TokenLogprob& other : token.top) {
      top.push_back(TokenLogprobObject(tokenizer_, other.token, other.logprob));
    }
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

json::value ReplyWriter::CompletionLogprobs(std::span<const engine::TokenEvent> tokens) {
  json::array texts, logprobs, tops, offsets;
  for (const engine::TokenEvent& token : tokens) {
    const std::string raw = tokenizer_.TokenBytes(token.token, /*render_control=*/true);
    texts.emplace_back(TextOf(raw));
    logprobs.emplace_back(Logprob(token.logprob));
    offsets.emplace_back(offset_);
    // A character counts where its first byte is, so that one spread over tokens counts once.
    const bool shown = !tokenizer_.IsControl(token.token);
    if (shown) offset_ += static_cast<uint64_t>(std::ranges::count_if(raw, [](char c) { return (c & 0xC0) != 0x80; }));
    if (shown && std::exchange(strip_first_space_, false) && raw.starts_with(' ')) --offset_;
    json::object top = {{TextOf(raw), Logprob(token.logprob)}};
    for (const step::TokenLogprob& other : token.top) {
      top[TextOf(tokenizer_.TokenBytes(other.token, /*render_control=*/true))] = Logprob(other.logprob);
    }
    tops.emplace_back(std::move(top));
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

std::string SseEvent(std::string_view data) {
  return Cat("data: ", data, "\n\n");
}

std::string ModelBody(const ModelInfo& model) {
  return JsonText(ModelObject(model));
}

std::string ModelListBody(const ModelInfo& model) {
  return JsonText(json::object{{"object", "list"}, {"data", ArrayOf(ModelObject(model))}});
}

std::string NewId(std::string_view prefix) {
  unsigned char bytes[16];
  KVIST_CHECK(RAND_bytes(bytes, sizeof bytes) == 1);
  std::string id(prefix);
  for (const unsigned char byte : bytes) id += fmt::format("{:02x}", byte);
  return id;
}

}  // namespace kvist::serve
