#include "serve/messages_format.h"

#include <iterator>

#include <fmt/format.h>

#include "serve/json_output.h"

namespace kvist::serve {

namespace json = boost::json;
using Kind = OutputPart::Kind;

namespace {

void AppendEvent(std::string_view name, std::string_view data, std::string& out) {
  out.append("event: ").append(name).append("\n");
  AppendSse(data, out);
}

/// Tokens found in the cache are apart from the others here.
json::object UsageObject(const engine::Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.output_tokens}};
}

json::value StopReason(const ChoiceEnd& end) {
  if (end.reason == engine::FinishReason::kLength) return "max_tokens";
  if (end.calls) return "tool_use";
  return end.stop.empty() ? "end_turn" : "stop_sequence";
}

json::value StopSequence(const ChoiceEnd& end) {
  if (end.stop.empty() || end.calls) return nullptr;
  return json::string(end.stop);
}

/// The arguments that a call ended with; what is cut off (by the output's end) is no JSON and is not shown.
json::value InputOf(const std::string& arguments) {
  json::error_code error;
  json::value input = json::parse(arguments, error);
  return error || !input.is_object() ? json::value(json::object()) : input;
}

json::array ContentOf(const ChoiceOutput& choice) {
  json::array content;
  for (const OutputPart& part : choice.parts) {
    switch (part.kind) {
      case Kind::kContent:
        content.push_back({{"type", "text"}, {"text", part.text}});
        break;
      case Kind::kReasoning:
        content.push_back({{"type", "thinking"}, {"thinking", part.text}, {"signature", ""}});
        break;
      case Kind::kCallBegin:
        content.push_back(
            {{"type", "tool_use"}, {"id", part.call_id}, {"name", part.call_name}, {"input", json::object()}});
        break;
      case Kind::kCallArguments:
        content.back().get_object()["input"] = InputOf(part.text);
        break;
      case Kind::kCallEnd:
        break;
    }
  }
  return content;
}

}  // namespace

json::object MessagesFormat::Message(json::array content, const ChoiceEnd* end, const engine::Usage& usage) const {
  return {{"id", info().id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", info().model},
          {"content", std::move(content)},
          {"stop_reason", end == nullptr ? json::value() : StopReason(*end)},
          {"stop_sequence", end == nullptr ? json::value() : StopSequence(*end)},
          {"usage", UsageObject(usage)}};
}

void MessagesFormat::Begin(uint32_t /*choices*/, const engine::Usage& usage, std::string& out) {
  engine::Usage begun = usage;
  begun.output_tokens = 0;
  const json::object event = {{"type", "message_start"}, {"message", Message({}, nullptr, begun)}};
  AppendEvent("message_start", JsonText(event), out);
}

void MessagesFormat::Open(Block block, const OutputPart& part, std::string& out) {
  if (open_ == block && block != Block::kCall) return;
  Close(out);
  json::object content;
  if (block == Block::kText) content = {{"type", "text"}, {"text", ""}};
  if (block == Block::kThinking) content = {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
  if (block == Block::kCall) {
    content = {{"type", "tool_use"}, {"id", part.call_id}, {"name", part.call_name}, {"input", json::object()}};
  }
  open_ = block;
  const json::object event = {
      {"type", "content_block_start"}, {"index", block_}, {"content_block", std::move(content)}};
  AppendEvent("content_block_start", JsonText(event), out);
}

void MessagesFormat::AppendDelta(std::string_view type, std::string_view field, std::string_view text,
                                 std::string& out) const {
  fmt::format_to(std::back_inserter(out),
                 "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":{},\"delta\":"
                 "{{\"type\":\"{}\",\"{}\":",
                 block_, type, field);
  AppendJsonString(text, out);
  out += "}}\n\n";
}

void MessagesFormat::Close(std::string& out) {
  if (open_ == Block::kNone) return;
  // Clients want one; there is nothing to sign.
  if (open_ == Block::kThinking) AppendDelta("signature_delta", "signature", "", out);
  const json::object event = {{"type", "content_block_stop"}, {"index", block_}};
  AppendEvent("content_block_stop", JsonText(event), out);
  open_ = Block::kNone;
  ++block_;
}

void MessagesFormat::Add(uint32_t /*choice*/, std::span<const OutputPart> parts,
                         std::span<const engine::TokenEvent> /*tokens*/, std::string& out) {
  for (const OutputPart& part : parts) {
    switch (part.kind) {
      case Kind::kContent:
        Open(Block::kText, part, out);
        AppendDelta("text_delta", "text", part.text, out);
        break;
      case Kind::kReasoning:
        Open(Block::kThinking, part, out);
        AppendDelta("thinking_delta", "thinking", part.text, out);
        break;
      case Kind::kCallBegin:
        Open(Block::kCall, part, out);
        break;
      case Kind::kCallArguments:
        AppendDelta("input_json_delta", "partial_json", part.text, out);
        break;
      case Kind::kCallEnd:
        Close(out);
        break;
    }
  }
}

void MessagesFormat::FinishChoice(uint32_t /*choice*/, const ChoiceEnd& end, std::string& out) {
  Close(out);
  end_ = end;
}

void MessagesFormat::End(const AnswerTotals& totals, std::string& out) {
  const json::object event = {{"type", "message_delta"},
                              {"delta", {{"stop_reason", StopReason(end_)}, {"stop_sequence", StopSequence(end_)}}},
                              {"usage", UsageObject(totals.usage)}};
  AppendEvent("message_delta", JsonText(event), out);
  AppendEvent("message_stop", R"({"type":"message_stop"})", out);
}

void MessagesFormat::Fail(const ApiError& error, std::string& out) {
  AppendEvent("error", ErrorBody(error, Dialect::kAnthropic), out);
}

void MessagesFormat::KeepAlive(std::string& out) {
  AppendEvent("ping", R"({"type":"ping"})", out);
}

std::string MessagesFormat::Whole(std::span<const ChoiceOutput> choices, const AnswerTotals& totals) {
  const ChoiceOutput& choice = choices.front();
  return JsonText(Message(ContentOf(choice), &choice.end, totals.usage));
}

}  // namespace kvist::serve
