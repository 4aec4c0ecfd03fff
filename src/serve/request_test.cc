#include "serve/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"
#include "serve/api_error.h"

namespace kvist::serve {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const RequestContext kContext{.model_id = "tiny", .vocab_size = 100};

/// A body with `more`, and with the field that there must be unless that is in it.
std::string BodyWith(std::string_view key, std::string_view value, const std::string& more) {
  const std::string own = Cat("\"", key, "\":");
  if (more.starts_with(own)) return Cat("{", more, "}");
  return Cat("{", own, value, more.empty() ? "" : ",", more, "}");
}
absl::StatusOr<ChatRequest> Chat(const std::string& more) {
  return ParseChatRequest(BodyWith("messages", R"([{"role":"user","content":"hi"}])", more), kContext);
}
absl::StatusOr<CompletionRequest> Completion(const std::string& more) {
  return ParseCompletionRequest(BodyWith("prompt", R"("hi")", more), kContext);
}

std::string ParamOf(const absl::Status& status) {
  if (status.ok()) return "(no error)";
  return ErrorFromStatus(status).param.value_or("(none)");
}

TEST(ChatRequest, DefaultsAreOpenAis) {
  const auto request = Chat("");
  ASSERT_TRUE(request.ok()) << request.status();
  const engine::GenerationRequest& generation = request->options.generation;
  EXPECT_EQ(generation.sampling.temperature, 1.0f);
  EXPECT_EQ(generation.sampling.top_p, 1.0f);
  EXPECT_EQ(generation.sampling.top_k, 0u);
  EXPECT_EQ(generation.max_tokens, UINT32_MAX);
  EXPECT_FALSE(generation.sampling.want_logprobs);
  EXPECT_FALSE(request->options.stream);
  EXPECT_FALSE(request->options.seed.has_value());
  EXPECT_EQ(generation.cache_namespace, 0u);
  EXPECT_TRUE(request->tools.is_null());
}

TEST(ChatRequest, ReadsEveryField) {
  const auto request =
      Chat(R"("model":"tiny","temperature":0.5,"top_p":0.9,"top_k":7,"min_p":0.05,"repetition_penalty":1.1,
      "presence_penalty":-1,"frequency_penalty":2,"seed":-5,"logit_bias":{"7":-100,"99":0.5},"logprobs":true,"top_logprobs":3,
      "stop":["a","","b"],"stop_token_ids":[0,99],"ignore_eos":true,"max_tokens":5,"max_completion_tokens":9,"stream":true,
      "stream_options":{"include_usage":true},"user":"u","n":1,"response_format":{"type":"text"},"tool_choice":"auto",
      "kvist":{"cache_salt":"s","priority":3},"chat_template_kwargs":{"enable_thinking":false},"reasoning_effort":"low","unknown":{})");
  ASSERT_TRUE(request.ok()) << request.status();
  const engine::GenerationRequest& generation = request->options.generation;
  EXPECT_EQ(generation.sampling.temperature, 0.5f);
  EXPECT_EQ(generation.sampling.top_p, 0.9f);
  EXPECT_EQ(generation.sampling.top_k, 7u);
  EXPECT_EQ(generation.sampling.min_p, 0.05f);
  EXPECT_EQ(generation.sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(generation.sampling.presence_penalty, -1.0f);
  EXPECT_EQ(generation.sampling.frequency_penalty, 2.0f);
  EXPECT_EQ(request->options.seed, static_cast<uint64_t>(int64_t{-5}));
  ASSERT_EQ(generation.biases.size(), 2u);
  EXPECT_EQ(generation.biases[0].token.value, 7u);
  EXPECT_EQ(generation.biases[0].bias, -100.0f);
  EXPECT_TRUE(generation.sampling.want_logprobs);
  EXPECT_EQ(generation.sampling.logprobs_count, 3u);
  EXPECT_THAT(generation.stop, ElementsAre("a", "b"));
  EXPECT_THAT(generation.stop_tokens, ElementsAre(TokenId{0}, TokenId{99}));
  EXPECT_TRUE(generation.ignore_eos);
  EXPECT_EQ(generation.max_tokens, 9u);
  EXPECT_TRUE(request->options.stream);
  EXPECT_TRUE(request->options.include_usage);
  EXPECT_EQ(generation.priority, 3);
  EXPECT_NE(generation.cache_namespace, 0u);
  EXPECT_EQ(json::serialize(request->template_extra), R"({"reasoning_effort":"low","enable_thinking":false})");
}

TEST(ChatRequest, NullMeansNotGiven) {
  const auto request =
      Chat(R"("model":null,"temperature":null,"stop":null,"seed":null,"max_tokens":null,"tools":null,"tool_choice":null,
      "response_format":null,"stream":null,"stream_options":null,"logit_bias":null,"kvist":null,"n":null,"logprobs":null)");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->options.generation.sampling.temperature, 1.0f);
}

TEST(ChatRequest, NamesTheParameterAtFault) {
  const struct {
    const char* fields;
    const char* param;
  } cases[] = {
      {R"("temperature":2.1)", "temperature"},
      {R"("temperature":-0.1)", "temperature"},
      {R"("temperature":"1")", "temperature"},
      {R"("temperature":1e999)", "temperature"},
      {R"("top_p":1.5)", "top_p"},
      {R"("top_k":-2)", "top_k"},
      {R"("top_k":1.5)", "top_k"},
      {R"("min_p":true)", "min_p"},
      {R"("repetition_penalty":0)", "repetition_penalty"},
      {R"("repeat_penalty":-1)", "repeat_penalty"},
      {R"("presence_penalty":2.01)", "presence_penalty"},
      {R"("seed":"x")", "seed"},
      {R"("seed":18446744073709551615)", "seed"},
      {R"("logit_bias":[1])", "logit_bias"},
      {R"("kvist":{"session":"s","window_sinks":8})", "kvist.window_sinks"},
      {R"("logit_bias":{"100":1})", "logit_bias"},
      {R"("logit_bias":{"01":1})", "logit_bias"},
      {R"("logit_bias":{"-1":1})", "logit_bias"},
      {R"("logit_bias":{"":1})", "logit_bias"},
      {R"("logit_bias":{"4294967297":1})", "logit_bias"},
      {R"("logit_bias":{"1":101})", "logit_bias.1"},
      {R"("logprobs":3)", "logprobs"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
      {R"("top_logprobs":2)", "top_logprobs"},
      {R"("stop":5)", "stop"},
      {R"("stop":["a",5])", "stop[1]"},
      {R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])", "stop"},
      {R"("stop_token_ids":[100])", "stop_token_ids[0]"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("max_tokens":-1)", "max_tokens"},
      {R"("max_completion_tokens":1.0)", "max_completion_tokens"},
      {R"("stream":1)", "stream"},
      {R"("stream_options":{"include_usage":true})", "stream_options"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage"},
      {R"("n":129)", "n"},
      {R"("n":0)", "n"},
      {R"("response_format":{"type":"xml"})", "response_format.type"},
      {R"("response_format":{})", "response_format.type"},
      {R"("response_format":"text")", "response_format"},
      {R"("response_format":{"type":"json_schema"})", "response_format.json_schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"x"}})", "response_format.json_schema.schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":{},"strict":1}})",
       "response_format.json_schema.strict"},
      {R"("grammar":5)", "grammar"},
      {R"("grammar":"root ::= \"a\"","response_format":{"type":"json_object"})", "grammar"},
      {R"("guided_json":"{")", "guided_json"},
      {R"("guided_choice":["a"])", "guided_choice"},
      {R"("reasoning_format":"xml")", "reasoning_format"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("tool_choice":"sometimes")", "tool_choice"},
      {R"("tool_choice":5)", "tool_choice"},
      {R"("tool_choice":{"type":"function"})", "tool_choice.function"},
      {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice"},
      {R"("tools":[{"function":{"name":"g"}}],"tool_choice":{"function":{"name":"f"}})", "tool_choice"},
      {R"("tools":[{"function":{"name":"g","parameters":5}}])", "tools[0].function.parameters"},
      {R"("parallel_tool_calls":"no")", "parallel_tool_calls"},
      {R"("functions":[])", "functions"},
      {R"("tools":{})", "tools"},
      {R"("tools":[{"type":"function"}])", "tools[0].function"},
      {R"("tools":[{"type":"web"}])", "tools[0].type"},
      {R"("tools":[{"type":"function","function":{"name":""}}])", "tools[0].function.name"},
      {R"("user":5)", "user"},
      {R"("kvist":{"salt":"x"})", "kvist.salt"},
      {R"("kvist":{"priority":256})", "kvist.priority"},
      {R"("kvist":{"cache_salt":5})", "kvist.cache_salt"},
      {R"("chat_template_kwargs":[])", "chat_template_kwargs"},
      {R"("messages":[])", "messages"},
      {R"("messages":"hi")", "messages"},
      {R"("messages":[5])", "messages[0]"},
      {R"("messages":[{"content":"x"}])", "messages[0].role"},
      {R"("messages":[{"role":"robot","content":"x"}])", "messages[0].role"},
      {R"("messages":[{"role":"user"}])", "messages[0].content"},
      {R"("messages":[{"role":"user","content":5}])", "messages[0].content"},
      {R"("messages":[{"role":"user","content":[{"type":"image_url"}]}])", "messages[0].content[0].type"},
      {R"("messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text"}]}])",
       "messages[0].content[1].text"},
      {R"("messages":[{"role":"user","content":["a"]}])", "messages[0].content[0]"},
      {R"("messages":[{"role":"user","content":"x","tool_calls":[]}])", "messages[0].tool_calls"},
      {R"("messages":[{"role":"user","content":"x","kvist":{"drop":1}}])", "messages[0].kvist.drop"},
      {R"("messages":[{"role":"user","content":"x","kvist":{"forget":true}}])", "messages[0].kvist.forget"},
      {R"("messages":[{"role":"user","content":"x","kvist":{"keep":1}}])", "messages[0].kvist.keep"},
      {R"("messages":[{"role":"user","content":"x","kvist":{"keep":true,"drop":true}}])", "messages[0].kvist.keep"},
      {R"("kvist":{"forget_below":0.1})", "kvist.forget_below"},
      {R"("kvist":{"session":"s","forget_below":1.5})", "kvist.forget_below"},
      {R"("kvist":{"session":5})", "kvist.session"},
      {R"("kvist":{"keep_tool_results":-1})", "kvist.keep_tool_results"},
      {R"("kvist":{"keep_turns":{"first":1}})", "kvist.keep_turns.last"},
      {R"("kvist":{"keep_turns":{"last":0}})", "kvist.keep_turns.last"},
      {R"("kvist":{"keep_turns":{"last":1,"middle":2}})", "kvist.keep_turns.middle"},
      {R"("kvist":{"drop":[{"begin":1,"end":2,"at":3,"x":1}]})", "kvist.drop[0].x"},
      {R"("kvist":{"drop":[{"begin":1,"end":2,"at":3}]})", "kvist.drop"},
      {R"("kvist":{"drop":[{"begin":1,"end":2}]})", "kvist.drop[0].at"},
      {R"("kvist":{"drop":[{"begin":2,"end":2,"at":3}]})", "kvist.drop"},
      {R"("messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1]"}}]}])",
       "messages[0].tool_calls[0].function.arguments"},
      {R"("messages":[{"role":"assistant","tool_calls":[{"id":"1"}]}])", "messages[0].tool_calls[0].function"},
  };
  for (const auto& c : cases) {
    const auto request = Chat(c.fields);
    EXPECT_EQ(ParamOf(request.status()), c.param) << c.fields;
    if (request.ok()) continue;
    EXPECT_TRUE(absl::IsInvalidArgument(request.status())) << request.status();
    EXPECT_THAT(std::string(request.status().message()), HasSubstr(c.param)) << "the message names it too";
  }
}

TEST(ChatRequest, OtherModelIsNotFound) {
  const auto request = Chat(R"("model":"gpt-4")");
  ASSERT_TRUE(absl::IsNotFound(request.status()));
  const ApiError error = ErrorFromStatus(request.status());
  EXPECT_EQ(error.http_status, 404);
  EXPECT_EQ(error.code, "model_not_found");
  EXPECT_EQ(error.param, "model");
  EXPECT_TRUE(Chat(R"("model":"")").ok());
}

TEST(ChatRequest, MessagesReachTheTemplateInOneForm) {
  const auto request = ParseChatRequest(R"({"messages":[
      {"role":"developer","content":"be brief"},
      {"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"role":"user","name":"Ann"},
      {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}},
                                                       {"function":{"name":"g","arguments":""}}]},
      {"role":"tool","tool_call_id":"c1","content":"7"},
      {"role":"assistant","content":"ok","tool_calls":null}],
      "tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]})",
                                        kContext);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(
      json::serialize(request->messages),
      R"([{"role":"system","content":"be brief"},)"
      R"({"content":"a\nb","role":"user","name":"Ann"},)"
      R"({"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":{"x":1}}},)"
      R"({"function":{"name":"g","arguments":{}}}]},)"
      R"({"role":"tool","tool_call_id":"c1","content":"7"},)"
      R"({"role":"assistant","content":"ok"}])");
  EXPECT_EQ(json::serialize(request->tools),
            R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])");
}

TEST(ChatRequest, ToolChoiceNoneOffersNoTools) {
  const auto request = Chat(R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none")");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(request->tools.is_null());
}

TEST(ChatRequest, SaysWhatTheOutputIsToBe) {
  using Form = OutputWish::Form;
  const auto wish = [](const char* fields) {
    const auto request = Chat(fields);
    EXPECT_TRUE(request.ok()) << request.status();
    return request->options.wish;
  };
  EXPECT_EQ(wish(R"("response_format":{"type":"text"})").form, Form::kText);
  EXPECT_EQ(wish(R"("response_format":{"type":"json_object"})").form, Form::kJsonObject);
  const OutputWish schema = wish(
      R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"null"},"strict":true}})");
  EXPECT_EQ(schema.form, Form::kSchema);
  EXPECT_TRUE(schema.strict);
  EXPECT_EQ(json::serialize(schema.schema), R"({"type":"null"})");
  EXPECT_EQ(json::serialize(wish(R"("guided_json":"{\"type\":\"null\"}")").schema), R"({"type":"null"})");
  EXPECT_EQ(wish(R"("grammar":"root ::= [a]")").text, "root ::= [a]");
  EXPECT_EQ(wish(R"("guided_regex":"a+")").form, Form::kRegex);
  EXPECT_FALSE(wish(R"("reasoning_format":"none")").reasoning_apart);
  const OutputWish call = wish(
      R"("tools":[{"function":{"name":"g"}}],"tool_choice":{"function":{"name":"g"}},"parallel_tool_calls":false)");
  EXPECT_EQ(call.calls, OutputWish::Calls::kNamed);
  EXPECT_EQ(call.call_name, "g");
  EXPECT_FALSE(call.parallel_calls);
}

TEST(ChatRequest, SaltsSeparateNamespaces) {
  const auto space = [](const char* fields) { return Chat(fields)->options.generation.cache_namespace; };
  EXPECT_EQ(space(R"("kvist":{"cache_salt":"a"})"), space(R"("cache_salt":"a")"));
  EXPECT_NE(space(R"("kvist":{"cache_salt":"a"})"), space(R"("kvist":{"cache_salt":"b"})"));
  EXPECT_EQ(space(R"("kvist":{"cache_salt":""})"), 0u);
}

TEST(CompletionRequest, PromptsOfEveryForm) {
  using Prompts = std::vector<TextOrTokens>;
  using Tokens = std::vector<TokenId>;
  const auto prompts = [](const std::string& prompt) {
    const auto request = ParseCompletionRequest(R"({"prompt":)" + prompt + "}", kContext);
    EXPECT_TRUE(request.ok()) << request.status();
    return request.ok() ? request->prompts : Prompts();
  };
  EXPECT_EQ(prompts(R"("a")"), Prompts{"a"});
  EXPECT_EQ(prompts(R"(["a"])"), Prompts{"a"});
  EXPECT_EQ(prompts("[1,99]"), (Prompts{Tokens{TokenId{1}, TokenId{99}}}));
  EXPECT_EQ(prompts("[[5]]"), (Prompts{Tokens{TokenId{5}}}));
  EXPECT_EQ(prompts(R"(["a",[1,2],"b"])"), (Prompts{"a", Tokens{TokenId{1}, TokenId{2}}, "b"}));
  const auto fault = [](const std::string& body) { return ParamOf(ParseCompletionRequest(body, kContext).status()); };
  for (const char* bad : {R"({})", R"({"prompt":null})", R"({"prompt":[]})", R"({"prompt":5})", R"({"prompt":{}})",
                          R"({"prompt":["a","b"],"kvist":{"drop":[{"begin":0,"end":1,"at":1}]}})"}) {
    EXPECT_EQ(fault(bad), "prompt") << bad;
  }
  EXPECT_EQ(fault(R"({"prompt":[1,100]})"), "prompt[1]");
  EXPECT_EQ(fault(R"({"prompt":[1,"a"]})"), "prompt[1]");
  EXPECT_EQ(fault(R"({"prompt":[[]]})"), "prompt[0]");
  EXPECT_EQ(fault(R"({"prompt":["a",[]]})"), "prompt[1]");
  EXPECT_EQ(fault(R"({"prompt":["a",1]})"), "prompt[1]");
  EXPECT_EQ(fault(R"({"prompt":["a",[3,100]]})"), "prompt[1][1]");
}

TEST(CompletionRequest, AnswersAreBounded) {
  const auto of = [](size_t prompts, int n) {
    json::array list;
    for (size_t i = 0; i < prompts; ++i) list.emplace_back("a");
    return ParseCompletionRequest(json::serialize(json::object{{"prompt", list}, {"n", n}}), kContext);
  };
  EXPECT_TRUE(of(512, 1).ok());
  EXPECT_TRUE(of(4, 128).ok());
  EXPECT_EQ(ParamOf(of(513, 1).status()), "prompt");
  EXPECT_EQ(ParamOf(of(5, 128).status()), "prompt");
}

TEST(CompletionRequest, OwnDefaultsAndLimits) {
  EXPECT_EQ(Completion("")->options.generation.max_tokens, 16u);
  EXPECT_EQ(Completion(R"("max_tokens":0)")->options.generation.max_tokens, 0u);
  EXPECT_TRUE(Completion(R"("logprobs":0)")->options.generation.sampling.want_logprobs);
  EXPECT_EQ(Completion(R"("logprobs":5)")->options.generation.sampling.logprobs_count, 5u);
  EXPECT_EQ(ParamOf(Completion(R"("logprobs":6)").status()), "logprobs");
  EXPECT_EQ(ParamOf(Completion(R"("logprobs":true)").status()), "logprobs");
  EXPECT_EQ(ParamOf(Completion(R"("best_of":3)").status()), "best_of");
  EXPECT_EQ(ParamOf(Completion(R"("suffix":"x")").status()), "suffix");
  EXPECT_TRUE(Completion(R"("echo":true,"logprobs":1)")->options.generation.want_prompt_logprobs);
  EXPECT_FALSE(Completion(R"("logprobs":1)")->options.generation.want_prompt_logprobs);
  EXPECT_TRUE(Completion(R"("echo":true)")->echo);
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const std::string& bad :
       {std::string(), std::string("{"), std::string("{\"messages\":"), std::string("{} x"), std::string("{'a':1}"),
        std::string("{\"a\":\"\xff\"}"), std::string("{\"a\":\"\\ud800\"}"), std::string("[]"), std::string("null"),
        std::string("{\"a\":1,}"), std::string("\xef\xbb\xbf{}"), std::string("{\"a\":\"\x01\"}"),
        std::string("{}\0", 3)}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseChatRequest(bad, kContext).status())) << bad;
  }
}

TEST(Json, SaysWhatIsWrongAndWhere) {
  const auto message = [](const char* body) {
    return std::string(ParseChatRequest(body, kContext).status().message());
  };
  EXPECT_THAT(message(""), HasSubstr("empty"));
  EXPECT_THAT(message("{\"a\":"), HasSubstr("ends inside"));
  EXPECT_THAT(message("{} x"), HasSubstr("at byte 3: text after the end"));
  EXPECT_THAT(message("{\"a\":tru}"), HasSubstr("at byte 5"));
  EXPECT_THAT(message("[1]"), HasSubstr("must be a JSON object, not an array"));
}

TEST(Json, NamesThatComeTwiceAreRefusedByName) {
  const auto message = [](std::string_view text) { return std::string(JsonDocument::Parse(text).status().message()); };
  EXPECT_EQ(message(R"({"a":1,"b":{"c":[{"stop":1, "stop" :2}]}})"),
            "the request body has the field 'stop' twice in one object");
  EXPECT_THAT(message(R"({"seed":1,"\u0073eed":2})"), HasSubstr("'seed' twice")) << "the same name, spelled otherwise";
  EXPECT_THAT(message(R"({"a\"":1,"a\"":2})"), HasSubstr("'a\"' twice"));
  for (const char* good : {R"([{"a":1},{"a":2}])", R"({"a":{"a":{"a":1}}})", R"({"a":"b:\"c\":","d":"\\"})", R"([])"}) {
    EXPECT_EQ(message(good), "") << good;
  }
  const absl::StatusOr<JsonDocument> repeated = JsonDocument::Parse(R"({"a":1,"a":2})", {.names_repeat = true});
  ASSERT_TRUE(repeated.ok());
  EXPECT_EQ(repeated->root().at("a").as_int64(), 2);
}

TEST(Json, InvalidUtf8IsCalledThat) {
  const auto message = [](const std::string& body) {
    return std::string(ParseChatRequest(body, kContext).status().message());
  };
  EXPECT_THAT(message("{\"a\":\"\xff\"}"), HasSubstr("not valid UTF-8 at byte 6"));
  EXPECT_THAT(message("{\"a\":\"x\xc3\"}"), HasSubstr("not valid UTF-8 at byte 7"));
  EXPECT_THAT(message("{\"a\":\"\xed\xa0\x80\"}"), HasSubstr("not valid UTF-8 at byte 6")) << "a surrogate";
  EXPECT_THAT(message("{\"a\":\"\xf0\x9f\x98\"}"), HasSubstr("not valid UTF-8 at byte 6")) << "a cut character";
  EXPECT_THAT(message("{\"\xff\":1}"), HasSubstr("not valid UTF-8 at byte 2"));
  EXPECT_THAT(message("\xff\xfe{}"), HasSubstr("not valid UTF-8 at byte 0"));
  const std::string far = "{\"a\":\"" + std::string(100'000, 'x') + "\xff\"}";
  EXPECT_THAT(message(far), HasSubstr("not valid UTF-8 at byte 100006"));
  EXPECT_THAT(message("{\"a\":tru,\"b\":\"xxxx\xff\"}"), HasSubstr("not valid JSON at byte 5")) << "the first fault";
}

TEST(Json, TooLargeIntegersAreCalledThat) {
  const auto message = [](const char* fields) { return std::string(Chat(fields).status().message()); };
  for (const char* huge : {"1e30", "99999999999999999999", "18446744073709551615", "4294967296", "1e999"}) {
    const std::string fields = std::string("\"max_tokens\":") + huge;
    EXPECT_THAT(message(fields.c_str()),
                HasSubstr("'max_tokens' is too large: it must be an integer from 1 to 4294967295"))
        << huge;
  }
  EXPECT_THAT(message(R"("max_tokens":-1e30)"), HasSubstr("is too small"));
  EXPECT_THAT(message(R"("max_tokens":0)"), HasSubstr("is too small: it must be an integer from 1"));
  EXPECT_THAT(message(R"("max_tokens":1.5)"), HasSubstr("must be an integer, not a number with a fraction"));
  EXPECT_THAT(message(R"("max_tokens":"7")"), HasSubstr("must be an integer, not a string"));
  EXPECT_THAT(message(R"("seed":9223372036854775808)"), HasSubstr("is too large"));
}

TEST(Json, NestingIsBounded) {
  const auto nested = [](int depth) {
    return Chat("\"x\":" + std::string(depth, '[') + std::string(depth, ']')).status();
  };
  EXPECT_TRUE(nested(60).ok());
  EXPECT_THAT(std::string(nested(70).message()), HasSubstr("64 levels"));
  EXPECT_TRUE(absl::IsInvalidArgument(nested(1'000'000)));
}

TEST(Json, MemoryIsBounded) {
  RequestContext context = kContext;
  context.json.memory_bytes_max = 1u << 20;
  std::string many = R"({"prompt":"a","x":[0)";
  for (int i = 0; i < 200'000; ++i) many += ",0";
  const auto open = ParseCompletionRequest(many, context);           // Still unfinished: the parser's own stack.
  const auto closed = ParseCompletionRequest(many + "]}", context);  // The tree.
  EXPECT_THAT(std::string(open.status().message()), HasSubstr("too many parts"));
  EXPECT_THAT(std::string(closed.status().message()), HasSubstr("too many parts"));
  EXPECT_TRUE(ParseCompletionRequest(many + "]}", kContext).ok());
}

TEST(Json, MessagesShowLittleOfHostileText) {
  const auto request = Chat("\"model\":\"" + std::string(10'000, 'x') + "\"");
  EXPECT_LT(request.status().message().size(), 300u);
  EXPECT_EQ(Shortened("a\nb\x7f"), "a?b?");
  const std::string cut = Shortened(std::string(79, 'a') + "\xC3\xA9\xC3\xA9");  // A character across the limit.
  EXPECT_EQ(cut, std::string(79, 'a') + "...");
}

}  // namespace
}  // namespace kvist::serve
