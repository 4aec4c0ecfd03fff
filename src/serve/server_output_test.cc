/// @file
/// Outputs that are held to a format, and calls of tools, over HTTP with the real small model.

#include <set>
#include <string>

#include "serve/server_model_testutil.h"

namespace kvist::serve {
namespace {

json::object SchemaFormat(std::string_view schema, bool strict = true) {
  return {{"type", "json_schema"},
          {"json_schema", {{"name", "answer"}, {"strict", strict}, {"schema", json::parse(schema)}}}};
}

json::array Tools() {
  return json::parse(R"([
      {"type": "function", "function": {"name": "find", "description": "d", "parameters": {"type": "object",
       "properties": {"what": {"type": "string", "maxLength": 12}, "count": {"type": "integer", "minimum": 1, "maximum": 9}},
       "required": ["what", "count"], "additionalProperties": false}}},
      {"type": "function", "function": {"name": "wait"}}])")
      .as_array();
}

class ServerOutputTest : public ServerModelTest {};

TEST_F(ServerOutputTest, AnswersFollowTheirSchemaWholeAndStreamed) {
  const json::object format = SchemaFormat(R"({"type": "object", "properties": {"thing": {"type": "string",
      "maxLength": 20}, "size": {"enum": ["small", "large"]}, "colours": {"type": "array", "items": {"enum":
      ["teal", "purple"]}, "minItems": 1, "maxItems": 2}}, "required": ["thing", "size", "colours"],
      "additionalProperties": false})");
  for (int seed = 0; seed < 3; ++seed) {
    json::object more = {
        {"response_format", format}, {"max_tokens", 200}, {"temperature", 1}, {"seed", seed}, {"logprobs", seed == 2}};
    const json::value whole = Ask(kChatPath, ChatBody("What is there?", more));
    EXPECT_EQ(FinishOf(whole), "stop");
    const json::value value = json::parse(TextOf(whole));
    EXPECT_LE(value.at("colours").as_array().size(), 2u);
    EXPECT_TRUE(value.at("size").as_string() == "small" || value.at("size").as_string() == "large");
    more["stream"] = true;
    EXPECT_EQ(Collect(Post(port(), kChatPath, ChatBody("What is there?", more)).body).text, TextOf(whole));
  }
  const json::value object =
      Ask(kChatPath, ChatBody("What?", {{"response_format", {{"type", "json_object"}}}, {"max_tokens", 12}}));
  EXPECT_TRUE(TextOf(object).starts_with("{"));
  EXPECT_TRUE(FinishOf(object) == "length" || json::parse(TextOf(object)).is_object());
}

TEST_F(ServerOutputTest, GrammarsHoldTextsToo) {
  const json::value reply =
      Ask(kTextPath, TextBody("The colour is", {{"grammar", R"(root ::= " " ("teal" | "purple") "!")"}}));
  EXPECT_TRUE(TextOf(reply) == " teal!" || TextOf(reply) == " purple!") << TextOf(reply);
  EXPECT_EQ(FinishOf(reply), "stop");
  const json::value regex = Ask(kTextPath, TextBody("The number is", {{"guided_regex", "[0-9]{3}-[a-c]+x"}}));
  EXPECT_THAT(TextOf(regex), ::testing::MatchesRegex("[0-9]{3}-[a-c]+x?.*"));
}

TEST_F(ServerOutputTest, ForcedCallsComeBackAsCalls) {
  const json::object more = {{"tools", Tools()}, {"tool_choice", "required"},   {"max_tokens", 300}, {"temperature", 1},
                             {"seed", 5},        {"parallel_tool_calls", false}};
  const json::value reply = Ask(kChatPath, ChatBody("Find it.", more));
  EXPECT_EQ(FinishOf(reply), "tool_calls");
  const json::array& calls = reply.at("choices").at(0).at("message").at("tool_calls").as_array();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_TRUE(std::string(calls[0].at("id").as_string()).starts_with("call_"));
  json::object named = more;
  named["tool_choice"] = {{"type", "function"}, {"function", {{"name", "find"}}}};
  const json::value find = Ask(kChatPath, ChatBody("Find it.", named));
  const json::value& function = find.at("choices").at(0).at("message").at("tool_calls").at(0).at("function");
  EXPECT_EQ(std::string(function.at("name").as_string()), "find");
  const json::value arguments = json::parse(std::string(function.at("arguments").as_string()));
  EXPECT_GE(arguments.at("count").as_int64(), 1);
  EXPECT_LE(arguments.at("count").as_int64(), 9);
}

TEST_F(ServerOutputTest, StreamedCallsKeepTheirIndexAndId) {
  // A grammar of the client's own is not taken apart, so the model is led there by its syntax.
  json::object more = {{"tools", Tools()}, {"tool_choice", "required"}, {"max_tokens", 400},
                       {"stream", true},   {"temperature", 1.5},        {"parallel_tool_calls", true}};
  bool two = false;
  for (int seed = 0; seed < 40 && !two; ++seed) {
    more["seed"] = seed;
    std::vector<std::string> names, arguments;
    std::set<std::string> ids;
    std::string finish;
    for (const std::string& data : SseData(Post(port(), kChatPath, ChatBody("Find two.", more)).body)) {
      if (data == "[DONE]") break;
      const json::value chunk = json::parse(data);
      const json::value& choice = chunk.at("choices").at(0);
      if (choice.at("finish_reason").is_string()) finish = std::string(choice.at("finish_reason").as_string());
      const json::object& delta = choice.at("delta").as_object();
      if (!delta.contains("tool_calls")) continue;
      for (const json::value& call : delta.at("tool_calls").as_array()) {
        const auto index = call.at("index").to_number<size_t>();
        if (call.as_object().contains("id")) {
          ASSERT_EQ(index, names.size());
          names.emplace_back(call.at("function").at("name").as_string());
          arguments.emplace_back();
          EXPECT_TRUE(ids.insert(std::string(call.at("id").as_string())).second);
        }
        ASSERT_EQ(index + 1, names.size());
        const json::object& function = call.at("function").as_object();
        if (function.contains("arguments")) arguments.back() += std::string(function.at("arguments").as_string());
      }
    }
    if (finish == "length") continue;
    EXPECT_EQ(finish, "tool_calls");
    for (const std::string& text : arguments) EXPECT_TRUE(json::parse(text).is_object()) << text;
    two = names.size() >= 2;
  }
  EXPECT_TRUE(two);
}

TEST_F(ServerOutputTest, FaultsOfARegexAreCountedInItself) {
  const auto message = [&](const char* regex) {
    return std::string(json::parse(Post(port(), kTextPath, TextBody("a", {{"guided_regex", regex}})).body)
                           .at("error")
                           .at("message")
                           .as_string());
  };
  EXPECT_THAT(message("ab(?=c)"), ::testing::HasSubstr("line 1, column 3"));
  EXPECT_THAT(message("(ab"), ::testing::HasSubstr("line 1, column 1: this '(' has no ')'"));
  EXPECT_THAT(message("ab)"), ::testing::HasSubstr("line 1, column 3: this ')' has no '('"));
  // The whole output is meant; who says so says nothing new.
  EXPECT_EQ(TextOf(Ask(kTextPath, TextBody("One", {{"guided_regex", "^[0-9]{3}$"}}))),
            TextOf(Ask(kTextPath, TextBody("One", {{"guided_regex", "[0-9]{3}"}}))));
}

TEST_F(ServerOutputTest, AFormatThatAStopCutsIsTold) {
  const json::object format = {{"guided_regex", "[a-z]{4} [0-9]{8}"}};
  json::object cut = format;
  cut["stop"] = " ";
  const json::value whole = Ask(kTextPath, TextBody("The", format)), part = Ask(kTextPath, TextBody("The", cut));
  EXPECT_EQ(FinishOf(whole), "stop");
  EXPECT_FALSE(whole.at("choices").at(0).as_object().contains("stop_reason"));
  EXPECT_EQ(FinishOf(part), "stop");
  EXPECT_EQ(part.at("choices").at(0).at("stop_reason"), " ");
  cut["stream"] = true;
  const HttpResponse stream = Post(port(), kTextPath, TextBody("The", cut));
  EXPECT_THAT(stream.body, ::testing::HasSubstr(R"("finish_reason":"stop","stop_reason":" ")"));
}

TEST_F(ServerOutputTest, WhatCannotBeHonouredIsRefusedByName) {
  const std::pair<json::object, std::string> cases[] = {
      {{{"response_format", SchemaFormat(R"({"type": "number", "multipleOf": 2})")}},
       "response_format.json_schema.schema"},
      {{{"response_format", SchemaFormat(R"({"type": "wrong"})", false)}}, "response_format.json_schema.schema"},
      {{{"grammar", "root ::= root"}}, "grammar"},
      {{{"guided_regex", "(?=a)"}}, "guided_regex"},
      {{{"guided_regex", "a)b(c"}}, "guided_regex"},
      {{{"tools", Tools()}, {"tool_choice", "required"}, {"response_format", {{"type", "json_object"}}}},
       "tool_choice"},
      {{{"tools", json::parse(R"([{"function": {"name": "f", "parameters": {"type": "x"}}}])")},
        {"tool_choice", "required"}},
       "tools[0].function.parameters"},
  };
  for (const auto& [more, param] : cases) {
    const HttpResponse response = Post(port(), kChatPath, ChatBody("Hi", more));
    EXPECT_EQ(response.status, 400) << response.body;
    EXPECT_EQ(std::string(json::parse(response.body).at("error").at("param").as_string()), param) << response.body;
  }
}

}  // namespace
}  // namespace kvist::serve
