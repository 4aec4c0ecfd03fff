#include "serve/responses_format.h"

#include <memory>
#include <utility>

#include "serve/chat_message.h"
#include "serve/json_output.h"

namespace kvist::serve {

namespace json = boost::json;
using Kind = OutputPart::Kind;

namespace {

json::object UsageObject(const engine::Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"output_tokens", usage.output_tokens},
          {"output_tokens_details", {{"reasoning_tokens", 0}}},
          {"total_tokens", uint64_t{usage.prompt_tokens} + usage.output_tokens}};
}

}  // namespace

ResponsesFormat::ResponsesFormat(AnswerInfo info, json::object shown, std::optional<Memory> memory)
    : AnswerFormat(std::move(info)),
      shown_(std::move(shown)),
      memory_(std::move(memory)),
      answer_(TextMessage("assistant", "")) {}

void ResponsesFormat::AppendEvent(std::string_view type, json::object fields, std::string& out) {
  json::object event = {{"type", type}, {"sequence_number", sequence_++}};
  for (auto& member : fields) event[member.key()] = std::move(member.value());
  out.append("event: ").append(type).append("\n");
  AppendSse(JsonText(event), out);
}

json::object ResponsesFormat::Response(std::string_view status) const {
  json::object response = {{"id", info().id},
                           {"object", "response"},
                           {"created_at", info().created_unix_s},
                           {"status", status},
                           {"background", false},
                           {"error", nullptr},
                           {"incomplete_details", nullptr},
                           {"model", info().model},
                           {"output", output_},
                           {"truncation", "disabled"},
                           {"usage", nullptr},
                           {"user", nullptr}};
  for (const auto& member : shown_) response[member.key()] = member.value();
  return response;
}

/// The open item, with what it has so far.
json::object ResponsesFormat::ItemObject(std::string_view status) const {
  json::array content;
  if (status != "in_progress") content.push_back(PartObject());
  switch (open_) {
    case Item::kMessage:
      return {{"id", item_id_},
              {"type", "message"},
              {"status", status},
              {"role", "assistant"},
              {"content", std::move(content)}};
    case Item::kReasoning:
      return {{"id", item_id_}, {"type", "reasoning"}, {"summary", json::array()}, {"content", std::move(content)}};
    default:
      return {{"id", item_id_},     {"type", "function_call"}, {"status", status},
              {"arguments", text_}, {"call_id", call_id_},     {"name", call_name_}};
  }
}

json::object ResponsesFormat::PartObject() const {
  if (open_ == Item::kReasoning) return {{"type", "reasoning_text"}, {"text", text_}};
  return {{"type", "output_text"}, {"annotations", json::array()}, {"logprobs", json::array()}, {"text", text_}};
}

/// Where the open item's text stands.
json::object ResponsesFormat::PlaceFields() const {
  json::object place = {{"item_id", item_id_}, {"output_index", output_.size()}};
  if (open_ != Item::kCall) place["content_index"] = 0;
  return place;
}

void ResponsesFormat::Open(Item item, const OutputPart& part, std::string& out) {
  if (open_ == item && item != Item::kCall) return;
  Close(out);
  open_ = item;
  item_id_ = NewId(item == Item::kMessage ? "msg_" : item == Item::kReasoning ? "rs_" : "fc_");
  text_.clear();
  call_id_ = part.call_id;
  call_name_ = part.call_name;
  AppendEvent("response.output_item.added", {{"output_index", output_.size()}, {"item", ItemObject("in_progress")}},
              out);
  if (item == Item::kCall) return;
  json::object fields = PlaceFields();
  fields["part"] = PartObject();
  AppendEvent("response.content_part.added", std::move(fields), out);
}

void ResponsesFormat::AddText(std::string_view text, std::string& out) {
  text_ += text;
  json::object fields = PlaceFields();
  fields["delta"] = text;
  if (open_ == Item::kMessage) fields["logprobs"] = json::array();
  AppendEvent(open_ == Item::kMessage     ? "response.output_text.delta"
              : open_ == Item::kReasoning ? "response.reasoning_text.delta"
                                          : "response.function_call_arguments.delta",
              std::move(fields), out);
}

void ResponsesFormat::Close(std::string& out, std::string_view status) {
  if (open_ == Item::kNone) return;
  json::object fields = PlaceFields();
  if (open_ == Item::kCall) {
    fields["name"] = call_name_;
    fields["arguments"] = text_;
    AppendEvent("response.function_call_arguments.done", std::move(fields), out);
    json::error_code error;
    json::value arguments = json::parse(text_, error);
    if (!error && arguments.is_object()) AddCall(answer_, call_id_, call_name_, std::move(arguments));
  } else {
    const bool message = open_ == Item::kMessage;
    fields["text"] = text_;
    if (message) fields["logprobs"] = json::array();
    AppendEvent(message ? "response.output_text.done" : "response.reasoning_text.done", std::move(fields), out);
    fields = PlaceFields();
    fields["part"] = PartObject();
    AppendEvent("response.content_part.done", std::move(fields), out);
    json::value& field = answer_[message ? "content" : "reasoning_content"];
    if (!field.is_string()) field = "";
    field.get_string().append(text_);
  }
  json::object item = ItemObject(status);
  AppendEvent("response.output_item.done", {{"output_index", output_.size()}, {"item", item}}, out);
  output_.push_back(std::move(item));
  open_ = Item::kNone;
}

void ResponsesFormat::Begin(uint32_t /*choices*/, const engine::Usage& /*usage*/, std::string& out) {
  AppendEvent("response.created", {{"response", Response("in_progress")}}, out);
  AppendEvent("response.in_progress", {{"response", Response("in_progress")}}, out);
}

void ResponsesFormat::Add(uint32_t /*choice*/, std::span<const OutputPart> parts,
                          std::span<const engine::TokenEvent> /*tokens*/, std::string& out) {
  for (const OutputPart& part : parts) {
    if (part.kind == Kind::kContent) Open(Item::kMessage, part, out);
    if (part.kind == Kind::kReasoning) Open(Item::kReasoning, part, out);
    if (part.kind == Kind::kCallBegin) {
      Open(Item::kCall, part, out);
    } else if (part.kind == Kind::kCallEnd) {
      Close(out);
    } else {
      AddText(part.text, out);
    }
  }
}

void ResponsesFormat::FinishChoice(uint32_t /*choice*/, const ChoiceEnd& end, std::string& out) {
  Close(out, end.reason == engine::FinishReason::kLength ? "incomplete" : "completed");
  end_ = end;
}

json::object ResponsesFormat::Finish(const AnswerTotals& totals) {
  const bool cut = end_.reason == engine::FinishReason::kLength;
  json::object response = Response(cut ? "incomplete" : "completed");
  if (cut) response["incomplete_details"] = json::object{{"reason", "max_output_tokens"}};
  response["usage"] = UsageObject(totals.usage);
  if (memory_) {
    auto stored = std::make_shared<StoredResponse>();
    stored->tenant = memory_->tenant;
    stored->cache_namespace = memory_->cache_namespace;
    stored->messages = std::move(memory_->messages);
    stored->messages.push_back(std::move(answer_));
    stored->body = JsonText(response);
    memory_->store.Store(info().id, std::move(stored), totals.usage.prompt_tokens + totals.usage.output_tokens);
  }
  return response;
}

void ResponsesFormat::End(const AnswerTotals& totals, std::string& out) {
  json::object response = Finish(totals);
  const std::string type = "response." + std::string(response.at("status").as_string());
  AppendEvent(type, {{"response", std::move(response)}}, out);
}

void ResponsesFormat::Fail(const ApiError& error, std::string& out) {
  json::object response = Response("failed");
  response["error"] = {{"code", "server_error"}, {"message", error.message}};
  AppendEvent("response.failed", {{"response", std::move(response)}}, out);
  AppendEvent("error", {{"code", error.code.value_or(error.type)}, {"message", error.message}, {"param", nullptr}},
              out);
}

std::string ResponsesFormat::Whole(std::span<const ChoiceOutput> choices, const AnswerTotals& totals) {
  std::string events;  // Nobody reads them; the items that they tell of are the answer.
  Add(0, choices.front().parts, {}, events);
  FinishChoice(0, choices.front().end, events);
  return JsonText(Finish(totals));
}

}  // namespace kvist::serve
