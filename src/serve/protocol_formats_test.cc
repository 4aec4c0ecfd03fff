/// @file
/// What the writers of the other protocols make of an output with every kind of part.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/json.hpp>

#include "serve/http_testutil.h"
#include "serve/messages_format.h"
#include "serve/ollama_format.h"
#include "serve/responses_format.h"

namespace kvist::serve {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

AnswerInfo Info() {
  return {.id = "id-1", .created_unix_s = 1, .model = "tiny", .stream = true};
}

/// Thought, text in two pieces, a call in two pieces, a call without arguments.
std::vector<OutputPart> AllParts() {
  return {{.kind = OutputPart::Kind::kReasoning, .text = "hm"},
          {.text = "I "},
          {.text = "look \xF0\x9F\x8C\xB2"},
          {.kind = OutputPart::Kind::kCallBegin, .call_id = "call_1", .call_name = "find"},
          {.kind = OutputPart::Kind::kCallArguments, .text = "{\"a\":"},
          {.kind = OutputPart::Kind::kCallArguments, .text = "1}"},
          {.kind = OutputPart::Kind::kCallEnd},
          {.kind = OutputPart::Kind::kCallBegin, .call = 1, .call_id = "call_2", .call_name = "stop"},
          {.kind = OutputPart::Kind::kCallEnd, .call = 1}};
}

ChoiceEnd CallsEnd() {
  return {.reason = engine::FinishReason::kStop, .calls = true, .stop = "", .capsule = ""};
}

ChoiceOutput AllOutput() {
  ChoiceOutput output{.parts = {}, .tokens = {}, .end = CallsEnd()};
  for (OutputPart& part : AllParts()) output.Append(std::move(part));
  return output;
}

const AnswerTotals kTotals{.usage = {.prompt_tokens = 10, .cached_tokens = 4, .output_tokens = 7},
                           .timings = {.ttft_ms = 2, .prompt_ms = 1, .total_ms = 5, .output_tokens_per_s = {}}};

std::string StreamOf(AnswerFormat& format) {
  std::string out;
  format.Begin(1, {.prompt_tokens = 10}, out);
  for (const OutputPart& part : AllParts()) format.Add(0, std::vector{part}, {}, out);
  format.FinishChoice(0, CallsEnd(), out);
  format.End(kTotals, out);
  return out;
}

std::vector<json::object> EventsOf(const std::string& stream) {
  std::vector<json::object> events;
  size_t named = 0;
  for (const std::string& part : SseEvents(stream)) {
    const size_t data = part.find("data: ");
    events.push_back(json::parse(part.substr(data + 6)).as_object());
    named += part.starts_with("event: " + std::string(events.back().at("type").as_string()) + "\n");
  }
  EXPECT_EQ(named, events.size());  // Each event's name is its type.
  return events;
}

std::vector<std::string> TypesOf(const std::vector<json::object>& events) {
  std::vector<std::string> types;
  for (const json::object& event : events) types.emplace_back(event.at("type").as_string());
  return types;
}

TEST(MessagesFormat, BlocksOpenAndCloseInOrder) {
  MessagesFormat format(Info());
  const std::vector<json::object> events = EventsOf(StreamOf(format));
  EXPECT_THAT(
      TypesOf(events),
      ElementsAre("message_start", "content_block_start", "content_block_delta", "content_block_delta",
                  "content_block_stop", "content_block_start", "content_block_delta", "content_block_delta",
                  "content_block_stop", "content_block_start", "content_block_delta", "content_block_delta",
                  "content_block_stop", "content_block_start", "content_block_stop", "message_delta", "message_stop"));
  EXPECT_EQ(json::serialize(events[2].at("delta")), R"({"type":"thinking_delta","thinking":"hm"})");
  EXPECT_EQ(json::serialize(events[3].at("delta")), R"({"type":"signature_delta","signature":""})");
  EXPECT_EQ(json::serialize(events[9].at("content_block")),
            R"({"type":"tool_use","id":"call_1","name":"find","input":{}})");
  EXPECT_EQ(json::serialize(events[10].at("delta")), R"({"type":"input_json_delta","partial_json":"{\"a\":"})");
  int64_t index = -1;
  for (const json::object& event : events) {
    if (event.at("type") == "content_block_start") ++index;
    if (event.contains("index")) {
      EXPECT_EQ(event.at("index").as_int64(), index);
    }
  }
  EXPECT_EQ(index, 3);
  EXPECT_EQ(json::serialize(events[15].at("delta")), R"({"stop_reason":"tool_use","stop_sequence":null})");
  EXPECT_EQ(json::serialize(events[15].at("usage")),
            R"({"input_tokens":6,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":7})");
}

TEST(MessagesFormat, WholeHasTheSameBlocks) {
  const json::value whole = json::parse(MessagesFormat(Info()).Whole(std::vector{AllOutput()}, kTotals));
  EXPECT_EQ(json::serialize(whole.at("content")),
            R"([{"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"I look )"
            "\xF0\x9F\x8C\xB2"
            R"("},{"type":"tool_use","id":"call_1","name":"find","input":{"a":1}},)"
            R"({"type":"tool_use","id":"call_2","name":"stop","input":{}}])");
  EXPECT_EQ(whole.at("stop_reason").as_string(), "tool_use");
}

TEST(MessagesFormat, SaysWhyItStopped) {
  const auto reason = [](ChoiceEnd end) {
    const ChoiceOutput output{.parts = {}, .tokens = {}, .end = std::move(end)};
    const json::value whole = json::parse(MessagesFormat(Info()).Whole(std::vector{output}, kTotals));
    return json::serialize(json::array{whole.at("stop_reason"), whole.at("stop_sequence")});
  };
  EXPECT_EQ(reason({.reason = engine::FinishReason::kStop, .stop = "", .capsule = ""}), R"(["end_turn",null])");
  EXPECT_EQ(reason({.reason = engine::FinishReason::kStop, .stop = "END", .capsule = ""}),
            R"(["stop_sequence","END"])");
  EXPECT_EQ(reason({.reason = engine::FinishReason::kLength, .stop = "", .capsule = ""}), R"(["max_tokens",null])");
}

TEST(OllamaFormat, EveryLineIsAnObject) {
  OllamaFormat format(Info(), OllamaFormat::Kind::kChat);
  std::string stream = StreamOf(format);
  format.KeepAlive(stream);
  std::vector<json::object> lines;
  for (size_t begin = 0; begin < stream.size();) {
    const size_t end = stream.find('\n', begin);
    ASSERT_NE(end, std::string::npos);
    lines.push_back(json::parse(stream.substr(begin, end - begin)).as_object());
    begin = end + 1;
  }
  ASSERT_EQ(lines.size(), 7u);
  const auto message = [&](size_t i) { return json::serialize(lines[i].at("message")); };
  EXPECT_EQ(message(0), R"({"role":"assistant","content":"","thinking":"hm"})");
  EXPECT_EQ(message(1), R"({"role":"assistant","content":"I "})");
  EXPECT_EQ(message(3),
            R"({"role":"assistant","content":"","tool_calls":[{"function":{"name":"find","arguments":{"a":1}}}]})");
  EXPECT_EQ(message(4),
            R"({"role":"assistant","content":"","tool_calls":[{"function":{"name":"stop","arguments":{}}}]})");
  EXPECT_EQ(message(5), R"({"role":"assistant","content":""})");
  EXPECT_TRUE(lines[5].at("done").as_bool());
  EXPECT_EQ(lines[5].at("total_duration").as_int64(), 5'000'000);
  EXPECT_EQ(lines[5].at("eval_duration").as_int64(), 3'000'000);
  EXPECT_EQ(lines[5].at("prompt_eval_count").as_int64(), 10);
  EXPECT_FALSE(lines[6].at("done").as_bool());
  EXPECT_EQ(lines[0].at("created_at").as_string(), "1970-01-01T00:00:01Z");
}

TEST(OllamaFormat, WholeAnswers) {
  const json::value chat =
      json::parse(OllamaFormat(Info(), OllamaFormat::Kind::kChat).Whole(std::vector{AllOutput()}, kTotals));
  EXPECT_EQ(chat.at("message").at("tool_calls").as_array().size(), 2u);
  EXPECT_EQ(chat.at("message").at("thinking").as_string(), "hm");
  const json::value text =
      json::parse(OllamaFormat(Info(), OllamaFormat::Kind::kGenerate).Whole(std::vector{AllOutput()}, kTotals));
  EXPECT_EQ(text.at("response").as_string(), "I look \xF0\x9F\x8C\xB2");
}

TEST(ResponsesFormat, EventsBuildTheResponse) {
  ResponsesFormat format(Info(), {{"store", false}}, std::nullopt);
  const std::vector<json::object> events = EventsOf(StreamOf(format));
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].at("sequence_number").as_int64(), static_cast<int64_t>(i));
  }
  EXPECT_EQ(events.front().at("type").as_string(), "response.created");
  const json::object& last = events.back();
  EXPECT_EQ(last.at("type").as_string(), "response.completed");
  json::array built;  // As a client does it.
  for (const json::object& event : events) {
    const std::string type(event.at("type").as_string());
    const auto at = [&]() -> json::object& {
      return built.at(static_cast<size_t>(event.at("output_index").as_int64())).as_object();
    };
    if (type == "response.output_item.added") built.push_back(event.at("item"));
    if (type == "response.content_part.added") at()["content"].as_array().push_back(event.at("part"));
    if (type.ends_with("text.delta")) {
      json::object& part = at().at("content").as_array().at(0).as_object();
      part["text"] = std::string(part["text"].as_string()) + std::string(event.at("delta").as_string());
    }
    if (type == "response.function_call_arguments.delta") {
      at()["arguments"] = std::string(at()["arguments"].as_string()) + std::string(event.at("delta").as_string());
    }
    if (type == "response.output_item.done") {
      if (at().contains("status")) at()["status"] = "completed";
      EXPECT_EQ(at(), event.at("item").as_object());
    }
  }
  EXPECT_EQ(built, last.at("response").at("output").as_array());
  EXPECT_EQ(last.at("response").at("usage").at("input_tokens_details").at("cached_tokens").as_int64(), 4);

  const json::value whole =
      json::parse(ResponsesFormat(Info(), {}, std::nullopt).Whole(std::vector{AllOutput()}, kTotals));
  ASSERT_EQ(whole.at("output").as_array().size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    json::object streamed = built[i].as_object(), one = whole.at("output").at(i).as_object();
    streamed.erase("id");
    one.erase("id");
    EXPECT_EQ(streamed, one);
  }
}

TEST(ResponsesFormat, IsKeptWithItsAnswer) {
  ResponseStore store;
  ResponsesFormat format(Info(), {}, ResponsesFormat::Memory{store, {}, 7, {{{"role", "user"}, {"content", "hi"}}}});
  StreamOf(format);
  const auto kept = store.Find("id-1");
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ((*kept)->cache_namespace, 7u);
  EXPECT_EQ(json::serialize((*kept)->messages),
            R"([{"role":"user","content":"hi"},{"role":"assistant","content":"I look )"
            "\xF0\x9F\x8C\xB2"
            R"(","reasoning_content":"hm","tool_calls":[{"id":"call_1","type":"function",)"
            R"("function":{"name":"find","arguments":{"a":1}}}]}])");
  EXPECT_THAT((*kept)->body, HasSubstr("\"completed\""));
}

TEST(ProtocolFormats, ErrorsInsideAStreamHaveTheProtocolsShape) {
  const ApiError error{.http_status = 503, .type = "server_error", .message = "gone"};
  std::string messages, ollama, responses;
  MessagesFormat(Info()).Fail(error, messages);
  EXPECT_EQ(
      messages,
      "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"gone\"}}\n\n");
  OllamaFormat(Info(), OllamaFormat::Kind::kGenerate).Fail(error, ollama);
  EXPECT_EQ(ollama, "{\"error\":\"gone\"}\n");
  ResponsesFormat(Info(), {}, std::nullopt).Fail(error, responses);
  EXPECT_THAT(TypesOf(EventsOf(responses)), ElementsAre("response.failed", "error"));
}

}  // namespace
}  // namespace kvist::serve
