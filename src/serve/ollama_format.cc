#include "serve/ollama_format.h"

#include <ctime>
#include <optional>

#include "base/status.h"
#include "serve/json_output.h"

namespace kvist::serve {

namespace json = boost::json;
using Part = OutputPart::Kind;

namespace {

/// Arguments that a call ended with; what was cut off by the output's end is no object.
json::value ArgumentsOf(const std::string& text) {
  json::error_code error;
  json::value arguments = json::parse(text, error);
  return error || !arguments.is_object() ? json::value(json::object()) : arguments;
}

json::array CallsOf(const ChoiceOutput& output) {
  json::array calls;
  for (const OutputPart& part : output.parts) {
    if (part.kind == Part::kCallBegin) {
      calls.push_back(json::object{{"function", {{"name", part.call_name}, {"arguments", json::object()}}}});
    } else if (part.kind == Part::kCallArguments) {
      calls.back().at("function").as_object()["arguments"] = ArgumentsOf(part.text);
    }
  }
  return calls;
}

int64_t Nanoseconds(double ms) {
  return static_cast<int64_t>(ms * 1e6);
}

}  // namespace

std::string OllamaTime(int64_t unix_s) {
  const time_t seconds = unix_s;
  tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

OllamaFormat::OllamaFormat(AnswerInfo answer, Kind kind)
    : AnswerFormat(std::move(answer)), kind_(kind), head_([this] {
        std::string head =
            JsonText(json::object{{"model", info().model}, {"created_at", OllamaTime(info().created_unix_s)}});
        head.pop_back();
        return head += kind_ == Kind::kChat ? R"(,"message":{"role":"assistant","content":)" : R"(,"response":)";
      }()) {}

/// @param field  "content", or "thinking", where the content is empty
void OllamaFormat::AppendText(std::string_view field, std::string_view text, std::string& out) const {
  out += head_;
  if (field != "content") out.append("\"\",\"").append(field).append("\":");
  AppendJsonString(text, out);
  out += kind_ == Kind::kChat ? "},\"done\":false}\n" : ",\"done\":false}\n";
}

void OllamaFormat::Add(uint32_t /*choice*/, std::span<const OutputPart> parts,
                       std::span<const engine::TokenEvent> /*tokens*/, std::string& out) {
  for (const OutputPart& part : parts) {
    if (part.kind == Part::kContent || part.kind == Part::kReasoning) {
      AppendText(part.kind == Part::kContent ? "content" : "thinking", part.text, out);
      continue;
    }
    call_.Append(OutputPart(part));
    if (part.kind != Part::kCallEnd) continue;
    out += Cat(head_, "\"\",\"tool_calls\":", JsonText(CallsOf(call_)), "},\"done\":false}\n");
    call_.parts.clear();
  }
}

void OllamaFormat::FinishChoice(uint32_t /*choice*/, const ChoiceEnd& end, std::string& /*out*/) {
  call_.parts.clear();  // A call that did not end is none.
  call_.end = end;
}

std::string OllamaFormat::Last(const ChoiceOutput& output, const AnswerTotals& totals) const {
  json::object body = {{"model", info().model}, {"created_at", OllamaTime(info().created_unix_s)}};
  const std::string thinking = output.TextOf(Part::kReasoning);
  if (kind_ == Kind::kChat) {
    json::object message = {{"role", "assistant"}, {"content", output.TextOf(Part::kContent)}};
    if (!thinking.empty()) message["thinking"] = thinking;
    if (json::array calls = CallsOf(output); !calls.empty()) message["tool_calls"] = std::move(calls);
    body["message"] = std::move(message);
  } else {
    body["response"] = output.TextOf(Part::kContent);
    if (!thinking.empty()) body["thinking"] = thinking;
  }
  const ReplyTimings& timings = totals.timings;
  const double prompt_ms = timings.prompt_ms.value_or(0);
  const double output_ms = timings.ttft_ms ? timings.total_ms - *timings.ttft_ms : 0;
  body["done"] = true;
  body["done_reason"] = output.end.reason == engine::FinishReason::kLength ? "length" : "stop";
  body["total_duration"] = Nanoseconds(timings.total_ms);
  body["load_duration"] = 0;
  body["prompt_eval_count"] = totals.usage.prompt_tokens;
  body["prompt_eval_duration"] = Nanoseconds(prompt_ms);
  body["eval_count"] = totals.usage.output_tokens;
  body["eval_duration"] = Nanoseconds(output_ms);
  return JsonText(body);
}

void OllamaFormat::End(const AnswerTotals& totals, std::string& out) {
  out += Last(call_, totals) + "\n";
}

void OllamaFormat::Fail(const ApiError& error, std::string& out) {
  out += ErrorBody(error, Dialect::kOllama) + "\n";
}

std::string OllamaFormat::Whole(std::span<const ChoiceOutput> choices, const AnswerTotals& totals) {
  return Last(choices.front(), totals);
}

}  // namespace kvist::serve
