#include "serve/reply.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "modelfile/gguf.h"
#include "serve/json_output.h"

namespace kvist::serve {
namespace {

namespace json = boost::json;

class ReplyTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto file = GgufFile::Open(KVIST_SOURCE_DIR "/models/default-q8_0.gguf");
    ASSERT_TRUE(file.ok()) << file.status();
    tokenizer_ = *Tokenizer::FromGguf(**file);
  }

  static ReplyInfo Info(bool chat) {
    return {.chat = chat, .stream = true, .id = "id-1", .created_unix_s = 5, .model = "tiny", .fingerprint = "fp"};
  }

  static TokenId Token(std::string_view piece) { return tokenizer_->Find(piece).value(); }

  static inline std::unique_ptr<const Tokenizer> tokenizer_;
};

TEST_F(ReplyTest, ChunksOfAChat) {
  const ReplyInfo info = Info(/*chat=*/true);
  ReplyWriter writer(info, *tokenizer_, 2);
  const std::string head =
      R"({"id":"id-1","object":"chat.completion.chunk","created":5,"model":"tiny","system_fingerprint":"fp",)";
  EXPECT_EQ(
      writer.BeginChunk(),
      head +
          R"("choices":[{"index":2,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})");
  EXPECT_EQ(writer.TextChunk({.text = "a\"\n"}),
            head + R"("choices":[{"index":2,"delta":{"content":"a\"\n"},"logprobs":null,"finish_reason":null}]})");
  EXPECT_EQ(writer.FinishChunk(engine::FinishReason::kStop, ""),
            head + R"("choices":[{"index":2,"delta":{},"logprobs":null,"finish_reason":"stop"}]})");
  EXPECT_EQ(writer.FinishChunk(engine::FinishReason::kStop, "cap-1"),
            head + R"("choices":[{"index":2,"delta":{},"logprobs":null,"finish_reason":"stop",)"
                   R"("kvist":{"capsule":"cap-1"}}]})");
  EXPECT_EQ(UsageChunk(info, {.prompt_tokens = 7, .cached_tokens = 3, .output_tokens = 2},
                       {.ttft_ms = 1.5, .total_ms = 20.25}),
            head + R"("choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,)"
                   R"("prompt_tokens_details":{"cached_tokens":3}},)"
                   R"("kvist":{"ttft_ms":1.5,"prompt_ms":null,"total_ms":20.25,"output_tokens_per_second":null}})");
}

TEST_F(ReplyTest, ChunksOfACompletion) {
  ReplyInfo info = Info(/*chat=*/false);
  EXPECT_EQ(ReplyWriter(info, *tokenizer_).BeginChunk(), "");
  info.echo = "prompt";
  info.include_usage = true;
  ReplyWriter writer(info, *tokenizer_);
  const std::string head =
      R"({"id":"id-1","object":"text_completion","created":5,"model":"tiny","system_fingerprint":"fp",)";
  EXPECT_EQ(writer.BeginChunk(),
            head + R"("choices":[{"index":0,"text":"prompt","logprobs":null,"finish_reason":null}],"usage":null})");
  EXPECT_EQ(writer.TextChunk({.text = "x"}),
            head + R"("choices":[{"index":0,"text":"x","logprobs":null,"finish_reason":null}],"usage":null})");
  EXPECT_EQ(writer.FinishChunk(engine::FinishReason::kLength, ""),
            head + R"("choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length"}],"usage":null})");
}

TEST_F(ReplyTest, WholeAnswers) {
  const auto whole = [&](const ReplyInfo& info, engine::FinishReason reason) {
    json::array choices;
    for (uint32_t i = 0; i < 2; ++i) {
      choices.push_back(ReplyWriter(info, *tokenizer_, i).WholeChoice("hi", {}, reason, ""));
    }
    return json::parse(WholeBody(info, std::move(choices), {}, {}));
  };
  const json::value chat = whole(Info(true), engine::FinishReason::kStop);
  EXPECT_EQ(chat.at("object").as_string(), "chat.completion");
  EXPECT_EQ(
      json::serialize(chat.at("choices").at(0)),
      R"({"index":0,"message":{"role":"assistant","content":"hi","refusal":null},"logprobs":null,"finish_reason":"stop"})");
  ReplyInfo info = Info(false);
  info.echo = "say ";
  const json::value text = whole(info, engine::FinishReason::kLength);
  EXPECT_EQ(text.at("object").as_string(), "text_completion");
  EXPECT_EQ(json::serialize(text.at("choices").at(0)),
            R"({"index":0,"text":"say hi","logprobs":null,"finish_reason":"length"})");
  EXPECT_EQ(text.at("choices").at(1).at("index").as_int64(), 1);
}

TEST_F(ReplyTest, ChatLogprobsHaveTextAndBytes) {
  ReplyInfo info = Info(true);
  info.logprobs = true;
  ReplyWriter writer(info, *tokenizer_);
  // Half a character, and a token that cannot be.
  engine::TokenEvent token{.token = Token("<0xC3>"), .logprob = -0.25f};
  token.top = {{Token("<0xC3>"), -0.25f}, {Token("a"), -INFINITY}};
  const json::value chunk = json::parse(writer.TextChunk({.tokens = {token}}));
  EXPECT_EQ(json::serialize(chunk.at("choices").at(0).at("logprobs").at("content").at(0).at("bytes")), "[195]");
  EXPECT_EQ(chunk.at("choices").at(0).at("logprobs").at("content").at(0).at("token").as_string(), "\xEF\xBF\xBD");
  const json::value& top = chunk.at("choices").at(0).at("logprobs").at("content").at(0).at("top_logprobs");
  EXPECT_EQ(top.at(1).at("token").as_string(), "a");
  EXPECT_EQ(top.at(1).at("logprob").to_number<double>(), -9999.0);
}

TEST_F(ReplyTest, CompletionOffsetsCountCharacters) {
  ReplyInfo info = Info(false);
  info.logprobs = true;
  info.strips_first_space = true;
  ReplyWriter writer(info, *tokenizer_);
  const auto event = [](std::string_view piece) { return engine::TokenEvent{.token = Token(piece)}; };
  // Shown: "the", then a character of two bytes in two tokens, then " a": in two pieces of the stream.
  const json::value first = json::parse(writer.TextChunk({.tokens = {event("\xE2\x96\x81the"), event("<0xC3>")}}));
  const json::value second = json::parse(writer.TextChunk({.tokens = {event("<0xA9>"), event("\xE2\x96\x81"
                                                                                             "a")}}));
  EXPECT_EQ(json::serialize(first.at("choices").at(0).at("logprobs").at("text_offset")), "[0,3]");
  EXPECT_EQ(json::serialize(second.at("choices").at(0).at("logprobs").at("text_offset")), "[4,4]");
  EXPECT_EQ(json::serialize(first.at("choices").at(0).at("logprobs").at("tokens").at(0)), R"(" the")");
}

TEST_F(ReplyTest, IdsDiffer) {
  EXPECT_NE(NewId("cmpl-"), NewId("cmpl-"));
  EXPECT_THAT(NewId("chatcmpl-"), ::testing::MatchesRegex("chatcmpl-[0-9a-f]+"));
}

TEST(JsonText, IsJsonWithPlainNumbers) {
  const json::value value = {{"a", 177.46},
                             {"b", {1, -2.5, 1e300, 0.0, nullptr, true}},
                             {"c\"", "d\n"},
                             {"e", json::object()},
                             {"f", json::array()}};
  EXPECT_EQ(JsonText(value), R"({"a":177.46,"b":[1,-2.5,1e+300,0,null,true],"c\"":"d\n","e":{},"f":[]})");
  EXPECT_EQ(JsonText(json::parse(JsonText(value))), JsonText(value));
}

}  // namespace
}  // namespace kvist::serve
