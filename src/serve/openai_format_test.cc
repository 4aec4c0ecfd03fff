#include "serve/openai_format.h"

#include <limits>

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "modelfile/gguf.h"
#include "serve/http_testutil.h"
#include "serve/json_output.h"

namespace kvist::serve {
namespace {

namespace json = boost::json;

class OpenAiFormatTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto file = GgufFile::Open(KVIST_SOURCE_DIR "/models/default-q8_0.gguf");
    ASSERT_TRUE(file.ok()) << file.status();
    tokenizer_ = *Tokenizer::FromGguf(**file);
  }

  static AnswerInfo Info() {
    return {.id = "id-1", .created_unix_s = 5, .model = "tiny", .fingerprint = "fp", .stream = true};
  }

  static TokenId Token(std::string_view piece) { return tokenizer_->Find(piece).value(); }
  static OutputPart Text(std::string text) { return {.text = std::move(text)}; }

  /// What Add writes.
  static std::string Added(AnswerFormat& format, std::vector<OutputPart> parts,
                           std::vector<engine::TokenEvent> tokens = {}) {
    std::string out;
    format.Add(0, parts, tokens, out);
    return out;
  }
  static json::value FirstChunk(const std::string& stream) { return json::parse(SseData(stream).at(0)); }

  static inline std::unique_ptr<const Tokenizer> tokenizer_;
};

constexpr char kChatHead[] =
    R"(data: {"id":"id-1","object":"chat.completion.chunk","created":5,"model":"tiny","system_fingerprint":"fp",)";

TEST_F(OpenAiFormatTest, ChunksOfAChat) {
  ChatFormat format(Info(), *tokenizer_, /*include_usage=*/false);
  const std::string head = kChatHead;
  std::string out;
  format.Begin(1, {}, out);
  EXPECT_EQ(
      out,
      head +
          R"("choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})" +
          "\n\n");
  out.clear();
  format.Add(2, std::vector{Text("a\"\n")}, {}, out);
  EXPECT_EQ(out, head + R"("choices":[{"index":2,"delta":{"content":"a\"\n"},"logprobs":null,"finish_reason":null}]})" +
                     "\n\n");
  out.clear();
  format.FinishChoice(2, {.reason = engine::FinishReason::kStop, .capsule = ""}, out);
  format.FinishChoice(2, {.reason = engine::FinishReason::kStop, .capsule = "cap-1"}, out);
  EXPECT_EQ(out, head + R"("choices":[{"index":2,"delta":{},"logprobs":null,"finish_reason":"stop"}]})" + "\n\n" +
                     head +
                     R"("choices":[{"index":2,"delta":{},"logprobs":null,"finish_reason":"stop",)"
                     R"("kvist":{"capsule":"cap-1"}}]})" +
                     "\n\n");
}

TEST_F(OpenAiFormatTest, UsageComesBeforeTheEnd) {
  const AnswerTotals totals{.usage = {.prompt_tokens = 7, .cached_tokens = 3, .output_tokens = 2},
                            .timings = {.ttft_ms = 1.5, .total_ms = 20.25}};
  std::string out, silent;
  ChatFormat(Info(), *tokenizer_, /*include_usage=*/true).End(totals, out);
  ChatFormat(Info(), *tokenizer_, /*include_usage=*/false).End(totals, silent);
  EXPECT_EQ(silent, "data: [DONE]\n\n");
  EXPECT_EQ(out, std::string(kChatHead) +
                     R"("choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,)"
                     R"("prompt_tokens_details":{"cached_tokens":3}},)"
                     R"("kvist":{"ttft_ms":1.5,"prompt_ms":null,"total_ms":20.25,"output_tokens_per_second":null}})" +
                     "\n\n" + silent);
}

TEST_F(OpenAiFormatTest, EachKindOfPartHasItsField) {
  ChatFormat format(Info(), *tokenizer_);
  const std::vector<OutputPart> parts = {
      {.kind = OutputPart::Kind::kReasoning, .text = "hm"},
      {.text = "I"},
      {.text = " look"},
      {.kind = OutputPart::Kind::kCallBegin, .call_id = "call_1", .call_name = "find"},
      {.kind = OutputPart::Kind::kCallArguments, .text = "{\"a\":"},
      {.kind = OutputPart::Kind::kCallArguments, .text = "1}"},
      {.kind = OutputPart::Kind::kCallEnd},
      {.kind = OutputPart::Kind::kCallBegin, .call = 1, .call_id = "call_2", .call_name = "stop"},
      {.kind = OutputPart::Kind::kCallEnd, .call = 1}};
  const std::vector<std::string> chunks = SseData(Added(format, parts));
  ASSERT_EQ(chunks.size(), 3u);
  const auto delta = [&](size_t i) { return json::serialize(json::parse(chunks[i]).at("choices").at(0).at("delta")); };
  EXPECT_EQ(delta(0), R"({"reasoning_content":"hm"})");
  EXPECT_EQ(delta(1), R"({"content":"I look"})");
  EXPECT_EQ(delta(2),
            R"({"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"find","arguments":""}},)"
            R"({"index":0,"function":{"arguments":"{\"a\":"}},{"index":0,"function":{"arguments":"1}"}},)"
            R"({"index":1,"id":"call_2","type":"function","function":{"name":"stop","arguments":""}}]})");

  ChoiceOutput choice{.end = {.reason = engine::FinishReason::kStop, .calls = true}};
  for (OutputPart part : parts) choice.Append(std::move(part));
  const json::value whole = json::parse(format.Whole(std::vector{choice}, {}));
  EXPECT_EQ(json::serialize(whole.at("choices").at(0)),
            R"({"index":0,"message":{"role":"assistant","content":"I look","refusal":null,"reasoning_content":"hm",)"
            R"("tool_calls":[{"id":"call_1","type":"function","function":{"name":"find","arguments":"{\"a\":1}"}},)"
            R"({"id":"call_2","type":"function","function":{"name":"stop","arguments":""}}]},)"
            R"("logprobs":null,"finish_reason":"tool_calls"})");
}

TEST_F(OpenAiFormatTest, ChunksOfACompletion) {
  std::string out;
  CompletionFormat(Info(), *tokenizer_).Begin(1, {}, out);
  EXPECT_EQ(out, "");
  CompletionFormat format(Info(), *tokenizer_, /*include_usage=*/true, {{.echo = "prompt"}});
  const std::string head =
      R"(data: {"id":"id-1","object":"text_completion","created":5,"model":"tiny","system_fingerprint":"fp",)";
  format.Begin(1, {}, out);
  EXPECT_EQ(
      out,
      head + R"("choices":[{"index":0,"text":"prompt","logprobs":null,"finish_reason":null}],"usage":null})" + "\n\n");
  EXPECT_EQ(Added(format, {Text("x")}),
            head + R"("choices":[{"index":0,"text":"x","logprobs":null,"finish_reason":null}],"usage":null})" + "\n\n");
  out.clear();
  format.FinishChoice(0, {.reason = engine::FinishReason::kLength, .capsule = ""}, out);
  EXPECT_EQ(out, head + R"("choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length"}],"usage":null})" +
                     "\n\n");
}

TEST_F(OpenAiFormatTest, WholeAnswers) {
  ChoiceOutput hi{.end = {.reason = engine::FinishReason::kStop, .capsule = ""}};
  hi.Append(Text("hi"));
  const json::value chat = json::parse(ChatFormat(Info(), *tokenizer_).Whole(std::vector{hi, hi}, {}));
  EXPECT_EQ(chat.at("object").as_string(), "chat.completion");
  EXPECT_EQ(
      json::serialize(chat.at("choices").at(0)),
      R"({"index":0,"message":{"role":"assistant","content":"hi","refusal":null},"logprobs":null,"finish_reason":"stop"})");
  hi.end.reason = engine::FinishReason::kLength;
  CompletionFormat echoing(Info(), *tokenizer_, false, {{.echo = "say "}, {.echo = "do "}});
  const json::value text = json::parse(echoing.Whole(std::vector{hi, hi}, {}));
  EXPECT_EQ(text.at("object").as_string(), "text_completion");
  EXPECT_EQ(json::serialize(text.at("choices").at(0)),
            R"({"index":0,"text":"say hi","logprobs":null,"finish_reason":"length"})");
  EXPECT_EQ(json::serialize(text.at("choices").at(1)),
            R"({"index":1,"text":"do hi","logprobs":null,"finish_reason":"length"})");
}

TEST_F(OpenAiFormatTest, ChatLogprobsHaveTextAndBytes) {
  AnswerInfo info = Info();
  info.logprobs = true;
  ChatFormat format(info, *tokenizer_);
  // Half a character, and a token that cannot be.
  engine::TokenEvent token{.token = Token("<0xC3>"), .logprob = -0.25f};
  token.top = {{Token("<0xC3>"), -0.25f}, {Token("a"), -INFINITY}};
  const json::value chunk = FirstChunk(Added(format, {}, {token}));
  const json::value& entry = chunk.at("choices").at(0).at("logprobs").at("content").at(0);
  EXPECT_EQ(json::serialize(entry.at("bytes")), "[195]");
  EXPECT_EQ(entry.at("token").as_string(), "\xEF\xBF\xBD");
  EXPECT_EQ(entry.at("top_logprobs").at(1).at("token").as_string(), "a");
  EXPECT_EQ(entry.at("top_logprobs").at(1).at("logprob").to_number<double>(), -9999.0);
}

TEST_F(OpenAiFormatTest, CompletionOffsetsCountCharacters) {
  AnswerInfo info = Info();
  info.logprobs = true;
  CompletionFormat format(info, *tokenizer_, /*include_usage=*/false, {{.strips_first_space = true}});
  const auto event = [](std::string_view piece) { return engine::TokenEvent{.token = Token(piece)}; };
  // Shown: "the", then a character of two bytes in two tokens, then " a": in two pieces of the stream.
  const json::value first = FirstChunk(Added(format, {}, {event("\xE2\x96\x81the"), event("<0xC3>")}));
  const json::value second = FirstChunk(Added(format, {},
                                              {event("<0xA9>"), event("\xE2\x96\x81"
                                                                      "a")}));
  EXPECT_EQ(json::serialize(first.at("choices").at(0).at("logprobs").at("text_offset")), "[0,3]");
  EXPECT_EQ(json::serialize(second.at("choices").at(0).at("logprobs").at("text_offset")), "[4,4]");
  EXPECT_EQ(json::serialize(first.at("choices").at(0).at("logprobs").at("tokens").at(0)), R"(" the")");
}

TEST_F(OpenAiFormatTest, EchoedPromptsHaveLogprobsAndOffsets) {
  AnswerInfo info = Info();
  info.logprobs = true;
  const auto event = [](std::string_view piece, float logprob) {
    return engine::TokenEvent{.token = Token(piece), .logprob = logprob, .top = {{Token("a"), -0.5f}}};
  };
  // A BOS that was added, then "the a" as it was written: the first space is the vocabulary's own.
  const std::vector<engine::TokenEvent> prompt = {event("<s>", NAN), event("\xE2\x96\x81the", -1.5f),
                                                  event("\xE2\x96\x81"
                                                        "a",
                                                        -2)};
  const CompletionPrompt shown{.echo = "the a", .echo_scored = true, .shows_controls = true, .tokens_before = 1};

  CompletionFormat streamed(info, *tokenizer_, /*include_usage=*/false, {shown});
  std::string out;
  streamed.Begin(1, {}, out);
  EXPECT_EQ(out, "") << "the echo waits for its log probabilities";
  streamed.AddPrompt(0, prompt, out);
  const json::value echo = FirstChunk(out).at("choices").at(0);
  EXPECT_EQ(echo.at("text").as_string(), "the a");
  const json::value next = FirstChunk(Added(streamed, {Text("a")}, {event("a", -3)})).at("choices").at(0);

  ChoiceOutput choice{.tokens = {event("a", -3)}, .prompt = prompt, .end = {.reason = engine::FinishReason::kLength}};
  choice.Append(Text("a"));
  CompletionFormat format(info, *tokenizer_, /*include_usage=*/false, {shown});
  const json::value whole = json::parse(format.Whole(std::vector{choice}, {})).at("choices").at(0);
  EXPECT_EQ(whole.at("text").as_string(), "the aa");
  const json::value& lists = whole.at("logprobs");
  EXPECT_EQ(json::serialize(lists.at("text_offset")), "[0,0,3,5]");
  EXPECT_EQ(json::serialize(lists.at("tokens")), R"(["<s>"," the"," a","a"])");
  EXPECT_EQ(json::serialize(lists.at("token_logprobs").at(0)), "null");
  EXPECT_EQ(lists.at("token_logprobs").at(1).to_number<double>(), -1.5);
  EXPECT_TRUE(lists.at("top_logprobs").at(0).is_null());
  EXPECT_EQ(lists.at("top_logprobs").at(2).at("a").to_number<double>(), -0.5);
  // In pieces the same.
  for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    json::array joined = echo.at("logprobs").at(list).as_array();
    for (const json::value& entry : next.at("logprobs").at(list).as_array()) joined.push_back(entry);
    EXPECT_EQ(joined, lists.at(list).as_array()) << list;
  }
}

TEST_F(OpenAiFormatTest, IdsDiffer) {
  EXPECT_NE(NewId("cmpl-"), NewId("cmpl-"));
  EXPECT_THAT(NewId("chatcmpl-"), ::testing::MatchesRegex("chatcmpl-[0-9a-f]+"));
}

TEST(JsonText, IsJsonWithPlainNumbers) {
  const json::value value = {{"a", 177.46},
                             {"b", {1, -2.5, 1e300, 0.0, nullptr, true}},
                             {"c\"", "d\n\x01\x1f\\"},
                             {"e", json::object()},
                             {"f", json::array()}};
  EXPECT_EQ(JsonText(value), R"({"a":177.46,"b":[1,-2.5,1e+300,0,null,true],"c\"":"d\n\u0001\u001f\\","e":{},"f":[]})");
  EXPECT_EQ(JsonText(json::parse(JsonText(value))), JsonText(value));
  EXPECT_EQ(JsonText(std::numeric_limits<double>::quiet_NaN()), "null");
}

}  // namespace
}  // namespace kvist::serve
