#include "serve/openai_format.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"
#include "modelfile/tokenizer_utf8.h"
#include "serve/json_output.h"

namespace kvist::serve {

namespace json = boost::json;
using Kind = OutputPart::Kind;

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

/// A character counts where its first byte is, so that one spread over tokens counts once.
uint64_t CharactersBegun(std::string_view bytes) {
  return static_cast<uint64_t>(std::ranges::count_if(bytes, [](char c) { return (c & 0xC0) != 0x80; }));
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

json::object OwnObject(const AnswerTotals& totals) {
  const auto& [usage, timings, turn] = totals;
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

std::string_view FinishName(const ChoiceEnd& end) {
  return end.calls && end.reason == engine::FinishReason::kStop ? "tool_calls" : FinishReasonName(end.reason);
}

/// What stands in a choice that has ended. "stop_reason" is vLLM's: with a format it tells a text that was cut from a
/// complete one.
json::object EndOf(const ChoiceEnd& end) {
  json::object out = {{"finish_reason", FinishName(end)}};
  if (!end.stop.empty()) out["stop_reason"] = end.stop;
  if (end.stop_token) out["stop_reason"] = end.stop_token->value;
  if (!end.capsule.empty()) out["kvist"] = json::object{{"capsule", end.capsule}};
  return out;
}

json::object ModelObject(const ModelInfo& model) {
  return {{"id", model.id},
          {"object", "model"},
          {"created", model.created_unix_s},
          {"owned_by", "kvist"},
          {"max_model_len", model.context_tokens_max}};
}

/// Reasoning, text and calls each have a field of their own; a chunk has one of them.
int FieldOf(Kind kind) {
  return kind == Kind::kReasoning ? 0 : kind == Kind::kContent ? 1 : 2;
}

std::string JoinedText(std::span<const OutputPart> parts) {
  std::string text;
  for (const OutputPart& part : parts) text += part.text;
  return text;
}

/// Of parts of calls. The first delta of a call has its id and name, all have its index.
json::array CallDeltas(std::span<const OutputPart> parts) {
  json::array deltas;
  for (const OutputPart& part : parts) {
    if (part.kind == Kind::kCallEnd) continue;
    json::object delta = {{"index", part.call}};
    if (part.kind == Kind::kCallBegin) {
      delta["id"] = part.call_id;
      delta["type"] = "function";
      delta["function"] = {{"name", part.call_name}, {"arguments", ""}};
    } else {
      delta["function"] = json::object{{"arguments", part.text}};
    }
    deltas.push_back(std::move(delta));
  }
  return deltas;
}

json::array WholeCalls(const ChoiceOutput& choice) {
  json::array calls;
  for (const OutputPart& part : choice.parts) {
    if (part.kind == Kind::kCallBegin) {
      calls.push_back(
          {{"id", part.call_id}, {"type", "function"}, {"function", {{"name", part.call_name}, {"arguments", ""}}}});
    } else if (part.kind == Kind::kCallArguments) {
      calls.back().at("function").as_object()["arguments"] = part.text;
    }
  }
  return calls;
}

}  // namespace

OpenAiFormat::OpenAiFormat(AnswerInfo info, const Tokenizer& tokenizer, bool include_usage,
                           std::string_view whole_object, std::string_view chunk_object)
    : AnswerFormat(std::move(info)),
      tokenizer_(tokenizer),
      include_usage_(include_usage),
      whole_object_(whole_object),
      chunk_object_(chunk_object),
      chunk_head_([this] {
        std::string head = JsonText(Head(chunk_object_));
        head.pop_back();
        return Cat("data: ", head, ",\"choices\":[{\"index\":");
      }()) {}

json::object OpenAiFormat::Head(std::string_view object) const {
  return {{"id", info().id},
          {"object", object},
          {"created", info().created_unix_s},
          {"model", info().model},
          {"system_fingerprint", info().fingerprint}};
}

void OpenAiFormat::AppendChunk(uint32_t choice, std::string_view body, std::string_view logprobs, const ChoiceEnd* end,
                               std::string& out) const {
  out.append(chunk_head_).append(std::to_string(choice)).append(body);
  out.append("\"logprobs\":").append(logprobs) += ',';
  const std::string last = end == nullptr ? R"({"finish_reason":null})" : JsonText(EndOf(*end));
  out.append(last, 1, last.size() - 2);  // Its members.
  out += include_usage_ ? "}],\"usage\":null}\n\n" : "}]}\n\n";
}

void OpenAiFormat::End(const AnswerTotals& totals, std::string& out) {
  if (include_usage_) {
    json::object body = Head(chunk_object_);
    body["choices"] = json::array();
    body["usage"] = UsageObject(totals.usage);
    body["kvist"] = OwnObject(totals);
    AppendSse(JsonText(body), out);
  }
  AppendSse("[DONE]", out);
}

void OpenAiFormat::Fail(const ApiError& error, std::string& out) {
  AppendSse(ErrorBody(error), out);
}

std::string OpenAiFormat::Whole(std::span<const ChoiceOutput> choices, const AnswerTotals& totals) {
  json::array list;
  for (uint32_t i = 0; i < choices.size(); ++i) {
    json::object choice = WholeChoice(i, choices[i]);
    for (auto& member : EndOf(choices[i].end)) choice[member.key()] = std::move(member.value());
    list.push_back(std::move(choice));
  }
  json::object body = Head(whole_object_);
  body["choices"] = std::move(list);
  body["usage"] = UsageObject(totals.usage);
  body["kvist"] = OwnObject(totals);
  return JsonText(body);
}

// ---- Chats.

void ChatFormat::Begin(uint32_t choices, const engine::Usage& /*usage*/, std::string& out) {
  for (uint32_t i = 0; i < choices; ++i) {
    AppendChunk(i, R"(,"delta":{"role":"assistant","content":""},)", "null", nullptr, out);
  }
}

void ChatFormat::Add(uint32_t choice, std::span<const OutputPart> parts, std::span<const engine::TokenEvent> tokens,
                     std::string& out) {
  std::string logprobs = info().logprobs ? JsonText(Logprobs(tokens)) : "null";
  if (parts.empty() && !tokens.empty()) AppendChunk(choice, R"(,"delta":{"content":""},)", logprobs, nullptr, out);
  while (!parts.empty()) {
    const int field = FieldOf(parts.front().kind);
    const auto end = std::ranges::find_if(parts, [&](const OutputPart& part) { return FieldOf(part.kind) != field; });
    const std::span<const OutputPart> run = parts.first(static_cast<size_t>(end - parts.begin()));
    parts = parts.subspan(run.size());
    std::string body = ",\"delta\":{";
    if (field == 2) {
      const json::array calls = CallDeltas(run);
      if (calls.empty()) continue;  // The end of a call is said by what follows.
      body += "\"tool_calls\":" + JsonText(calls);
    } else {
      body += field == 0 ? "\"reasoning_content\":" : "\"content\":";
      AppendJsonString(JoinedText(run), body);
    }
    AppendChunk(choice, body += "},", logprobs, nullptr, out);
    logprobs = "null";  // They stand once, with the first of several chunks.
  }
}

void ChatFormat::FinishChoice(uint32_t choice, const ChoiceEnd& end, std::string& out) {
  AppendChunk(choice, ",\"delta\":{},", "null", &end, out);
}

json::object ChatFormat::WholeChoice(uint32_t index, const ChoiceOutput& choice) {
  json::array calls = WholeCalls(choice);
  const std::string content = choice.TextOf(Kind::kContent), reasoning = choice.TextOf(Kind::kReasoning);
  json::object message = {{"role", "assistant"}, {"content", nullptr}, {"refusal", nullptr}};
  if (!content.empty() || calls.empty()) message["content"] = content;
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return {{"index", index},
          {"message", std::move(message)},
          {"logprobs", info().logprobs ? Logprobs(choice.tokens) : json::value()}};
}

json::value ChatFormat::Logprobs(std::span<const engine::TokenEvent> tokens) const {
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

// ---- Completions.

const CompletionPrompt& CompletionFormat::PromptOf(uint32_t choice) const {
  static const CompletionPrompt kHidden;
  return prompts_.empty() ? kHidden : prompts_.at(choice / info().choices);
}

CompletionFormat::Place& CompletionFormat::PlaceOf(uint32_t choice) {
  while (places_.size() <= choice) {
    places_.push_back({.stripped = !PromptOf(static_cast<uint32_t>(places_.size())).strips_first_space});
  }
  return places_[choice];
}

void CompletionFormat::Begin(uint32_t choices, const engine::Usage& /*usage*/, std::string& out) {
  for (uint32_t i = 0; i < choices; ++i) {
    const CompletionPrompt& prompt = PromptOf(i);
    if (!prompt.echo.has_value() || prompt.echo_scored) continue;
    std::string body = ",\"text\":";
    AppendJsonString(*prompt.echo, body);
    AppendChunk(i, body += ',', "null", nullptr, out);
  }
}

void CompletionFormat::AddPrompt(uint32_t choice, std::span<const engine::TokenEvent> tokens, std::string& out) {
  TokenLists lists;
  AppendPromptTokens(choice, tokens, lists);
  std::string body = ",\"text\":";
  AppendJsonString(PromptOf(choice).echo.value_or(""), body);
  AppendChunk(choice, body += ',', JsonText(std::move(lists).Object()), nullptr, out);
}

void CompletionFormat::Add(uint32_t choice, std::span<const OutputPart> parts,
                           std::span<const engine::TokenEvent> tokens, std::string& out) {
  std::string body = ",\"text\":", logprobs = "null";
  AppendJsonString(JoinedText(parts), body);
  if (info().logprobs) {
    TokenLists lists;
    AppendTokens(choice, tokens, lists);
    logprobs = JsonText(std::move(lists).Object());
  }
  AppendChunk(choice, body += ',', logprobs, nullptr, out);
}

void CompletionFormat::FinishChoice(uint32_t choice, const ChoiceEnd& end, std::string& out) {
  AppendChunk(choice, R"(,"text":"",)", "null", &end, out);
}

json::object CompletionFormat::WholeChoice(uint32_t index, const ChoiceOutput& choice) {
  json::value logprobs;
  if (info().logprobs) {
    TokenLists lists;
    AppendPromptTokens(index, choice.prompt, lists);
    AppendTokens(index, choice.tokens, lists);
    logprobs = std::move(lists).Object();
  }
  return {{"index", index},
          {"text", PromptOf(index).echo.value_or("") + choice.TextOf(Kind::kContent)},
          {"logprobs", std::move(logprobs)}};
}

json::object CompletionFormat::TokenLists::Object() && {
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

void CompletionFormat::AppendToken(const engine::TokenEvent& token, uint64_t offset, TokenLists& lists) const {
  std::string text = TextOf(tokenizer_.TokenBytes(token.token, /*render_control=*/true));
  lists.offsets.emplace_back(offset);
  if (std::isnan(token.logprob)) {  // Nothing comes before it.
    lists.tokens.emplace_back(std::move(text));
    lists.logprobs.emplace_back(nullptr);
    lists.tops.emplace_back(nullptr);
    return;
  }
  json::object top = {{text, Logprob(token.logprob)}};
  for (const step::TokenLogprob& other : token.top) {
    top[TextOf(tokenizer_.TokenBytes(other.token, /*render_control=*/true))] = Logprob(other.logprob);
  }
  lists.tokens.emplace_back(std::move(text));
  lists.logprobs.emplace_back(Logprob(token.logprob));
  lists.tops.emplace_back(std::move(top));
}

void CompletionFormat::AppendPromptTokens(uint32_t choice, std::span<const engine::TokenEvent> tokens,
                                          TokenLists& lists) {
  const CompletionPrompt& prompt = PromptOf(choice);
  uint64_t& offset = PlaceOf(choice).characters;
  bool at_break = true;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const TokenId token = tokens[i].token;
    AppendToken(tokens[i], offset, lists);
    const bool shown = i >= prompt.tokens_before && (prompt.shows_controls || !tokenizer_.IsControl(token));
    const std::string raw = tokenizer_.TokenBytes(token, prompt.shows_controls);
    if (shown) offset += CharactersBegun(raw);
    // The space that was put before a word is not in the text.
    if (shown && at_break && tokenizer_.adds_space_prefix() && raw.starts_with(' ')) --offset;
    at_break = tokenizer_.IsBreak(token);
  }
}

void CompletionFormat::AppendTokens(uint32_t choice, std::span<const engine::TokenEvent> tokens, TokenLists& lists) {
  Place& place = PlaceOf(choice);
  for (const engine::TokenEvent& token : tokens) {
    AppendToken(token, place.characters, lists);
    if (tokenizer_.IsControl(token.token)) continue;
    const std::string raw = tokenizer_.TokenBytes(token.token);
    place.characters += CharactersBegun(raw);
    if (!std::exchange(place.stripped, true) && raw.starts_with(' ')) --place.characters;
  }
}

std::string ModelBody(const ModelInfo& model) {
  return JsonText(ModelObject(model));
}

std::string ModelListBody(const ModelInfo& model) {
  return JsonText(json::object{{"object", "list"}, {"data", ArrayOf(ModelObject(model))}});
}

}  // namespace kvist::serve
