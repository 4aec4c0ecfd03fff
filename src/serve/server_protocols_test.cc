/// @file
/// The other protocols over HTTP: Anthropic's messages, Ollama's API, Responses, tokens.

#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/json.hpp>

#include "absl/strings/escaping.h"

#include "serve/server_testutil.h"

namespace kvist::serve {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr char kMessage[] = R"({"model":"fake","max_tokens":8,"messages":[{"role":"user","content":"hello"}]})";
constexpr char kOllama[] =
    R"({"model":"fake:latest","messages":[{"role":"user","content":"hello"}],"options":{"num_predict":8}})";
constexpr char kResponse[] = R"({"model":"fake","input":"hello","max_output_tokens":8})";

/// The body with another field.
std::string With(const char* body, json::object more) {
  json::object object = json::parse(body).as_object();
  for (auto& member : more) object[member.key()] = member.value();
  return json::serialize(object);
}

std::vector<json::value> LinesOf(const std::string& body) {
  std::vector<json::value> lines;
  for (size_t begin = 0; begin < body.size();) {
    const size_t end = body.find('\n', begin);
    lines.push_back(json::parse(body.substr(begin, end - begin)));
    begin = end + 1;
  }
  return lines;
}

/// What the fake model answers to kHello, in eight tokens.
std::string Expected(uint16_t port) {
  return std::string(
      json::parse(Post(port, kChatPath, kHello).body).at("choices").at(0).at("message").at("content").as_string());
}

TEST(Protocols, MessagesWholeAndStreamed) {
  FakeWorld world(Options());
  const uint16_t port = world.port();
  const std::string expected = Expected(port);
  const HttpResponse reply = Post(port, "/v1/messages", kMessage);
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json::value whole = json::parse(reply.body);
  EXPECT_EQ(whole.at("content").at(0).at("text").as_string(), expected);
  EXPECT_EQ(whole.at("stop_reason").as_string(), "max_tokens");
  EXPECT_EQ(whole.at("usage").at("output_tokens").as_int64(), 8);

  const HttpResponse stream = Post(port, "/v1/messages", With(kMessage, {{"stream", true}}));
  EXPECT_EQ(stream.headers.at("content-type"), "text/event-stream");
  std::string text;
  for (const std::string& event : SseEvents(stream.body)) {
    const json::value data = json::parse(event.substr(event.find("data: ") + 6));
    if (data.at("type") == "content_block_delta") text += std::string(data.at("delta").at("text").as_string());
  }
  EXPECT_EQ(text, expected);
  EXPECT_THAT(stream.body, HasSubstr("event: message_stop"));

  const json::value counted = json::parse(Post(port, "/v1/messages/count_tokens", kMessage).body);
  const json::value& usage = whole.at("usage");
  EXPECT_EQ(counted.at("input_tokens").as_int64(),
            usage.at("input_tokens").as_int64() + usage.at("cache_read_input_tokens").as_int64());
}

TEST(Protocols, MessagesNameTheirStopSequence) {
  FakeWorld world(Options());
  const HttpResponse reply =
      Post(world.port(), "/v1/messages", With(kMessage, {{"stop_sequences", {"nothing", "soft"}}, {"max_tokens", 50}}));
  const json::value whole = json::parse(reply.body);
  EXPECT_EQ(whole.at("stop_reason").as_string(), "stop_sequence");
  EXPECT_EQ(whole.at("stop_sequence").as_string(), "soft");
  EXPECT_EQ(whole.at("content").at(0).at("text").as_string().find("so"), json::string::npos);
}

TEST(Protocols, ErrorsSpeakTheProtocol) {
  FakeWorldOptions options = Options();
  options.server.api_keys = {"secret"};
  FakeWorld world(options);
  const uint16_t port = world.port();
  const std::string key = "x-api-key: secret\r\n", bearer = "Authorization: Bearer secret\r\n";
  const auto anthropic = [](const HttpResponse& reply) {
    const json::value body = json::parse(reply.body);
    EXPECT_EQ(body.at("type").as_string(), "error");
    return std::string(body.at("error").at("type").as_string());
  };
  EXPECT_EQ(anthropic(Post(port, "/v1/messages", kMessage)), "authentication_error");
  EXPECT_EQ(anthropic(Post(port, "/v1/messages", kMessage, "x-api-key: wrong\r\n")), "authentication_error");
  EXPECT_EQ(Post(port, "/v1/messages", kMessage, key).status, 200);
  EXPECT_EQ(anthropic(Post(port, "/v1/messages", With(kMessage, {{"model", "other"}}), key)), "not_found_error");
  EXPECT_EQ(anthropic(Post(port, "/v1/messages", With(kMessage, {{"messages", nullptr}}), key)),
            "invalid_request_error");
  EXPECT_EQ(anthropic(Get(port, "/v1/messages", key)), "invalid_request_error");
  const std::string huge(200'000, 'x');
  const HttpResponse too_long = Post(port, "/v1/messages", With(kMessage, {{"system", huge}}), key);
  EXPECT_EQ(too_long.status, 400);
  EXPECT_THAT(too_long.body, HasSubstr("8192"));

  const HttpResponse unknown = Post(port, "/api/chat", With(kOllama, {{"model", "other"}}), bearer);
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(std::string(json::parse(unknown.body).at("error").as_string()), HasSubstr("'other'"));
  const HttpResponse long_chat = Post(
      port, "/api/generate", With(R"({"model":"fake","raw":true})", {{"prompt", std::string(60'000, 'x')}}), bearer);
  EXPECT_EQ(long_chat.status, 400);
  EXPECT_THAT(std::string(json::parse(long_chat.body).at("error").as_string()), HasSubstr("8192"));
  EXPECT_EQ(ErrorOf(Post(port, "/v1/responses", With(kResponse, {{"background", true}}), bearer)).at("param"),
            "background");
}

TEST(Protocols, TheOneServedModelNeedsNoName) {
  FakeWorld world(Options());
  for (const auto& [path, body] :
       {std::pair("/api/generate", R"({"prompt":"hi","stream":false})"),
        std::pair("/api/chat", R"({"messages":[{"role":"user","content":"hi"}],"stream":false})"),
        std::pair("/api/show", "{}"), std::pair("/api/embed", R"({"input":"hi"})")}) {
    const HttpResponse reply = Post(world.port(), path, body);
    EXPECT_EQ(reply.status, 200) << path << reply.body;
  }
  EXPECT_EQ(Post(world.port(), "/api/show", R"({"model":"other"})").status, 404);
}

TEST(Protocols, AnEmulatedDeviceSaysThatItsTokensCannotBeBiased) {
  FakeWorldOptions options = Options();
  options.emulated = true;
  FakeWorld world(options);
  const HttpResponse reply = Post(world.port(), "/v1/completions", R"({"prompt":"hi","logit_bias":{"5":100}})");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(ErrorOf(reply).at("param"), "logit_bias");
  EXPECT_EQ(Post(world.port(), "/v1/completions", R"({"prompt":"hi","logit_bias":{}})").status, 200);
}

TEST(Protocols, OllamaStreamsLinesUnlessToldOtherwise) {
  FakeWorld world(Options());
  const uint16_t port = world.port();
  const std::string expected = Expected(port);
  const HttpResponse stream = Post(port, "/api/chat", kOllama);
  ASSERT_EQ(stream.status, 200) << stream.body;
  EXPECT_EQ(stream.headers.at("content-type"), "application/x-ndjson");
  std::string text;
  const std::vector<json::value> lines = LinesOf(stream.body);
  for (const json::value& line : lines) {
    text += std::string(line.at("message").at("content").as_string());
    EXPECT_EQ(line.at("done").as_bool(), &line == &lines.back());
  }
  EXPECT_EQ(text, expected);
  EXPECT_EQ(lines.back().at("done_reason").as_string(), "length");
  EXPECT_EQ(lines.back().at("eval_count").as_int64(), 8);
  const json::value whole = json::parse(Post(port, "/api/chat", With(kOllama, {{"stream", false}})).body);
  EXPECT_EQ(whole.at("message").at("content").as_string(), expected);
  const json::value generated = json::parse(
      Post(port, "/api/generate", R"({"model":"fake","prompt":"hello","stream":false,"options":{"num_predict":8}})")
          .body);
  EXPECT_EQ(generated.at("response").as_string(), expected);
}

TEST(Protocols, OllamaTellsOfTheModel) {
  FakeWorld world(Options());
  const uint16_t port = world.port();
  for (const char* path : {"/api/tags", "/api/ps"}) {
    EXPECT_EQ(json::parse(Get(port, path).body).at("models").at(0).at("name").as_string(), "fake:latest");
  }
  EXPECT_FALSE(json::parse(Get(port, "/api/version").body).at("version").as_string().empty());
  const json::value shown = json::parse(Post(port, "/api/show", R"({"model":"fake"})").body);
  EXPECT_EQ(shown.at("capabilities"), json::array({"completion"})) << "its template knows no tools";
  EXPECT_EQ(Post(port, "/api/show", R"({"model":"other"})").status, 404);
}

TEST(Protocols, ResponsesAreKeptToGoOnFrom) {
  FakeWorld world(Options());
  const uint16_t port = world.port();
  const std::string expected = Expected(port);
  const json::value first = json::parse(Post(port, "/v1/responses", kResponse).body);
  EXPECT_EQ(first.at("output").at(0).at("content").at(0).at("text").as_string(), expected);
  EXPECT_EQ(first.at("status").as_string(), "incomplete");
  EXPECT_EQ(first.at("output").at(0).at("status").as_string(), "incomplete");
  EXPECT_EQ(first.at("incomplete_details").at("reason").as_string(), "max_output_tokens");
  const std::string id(first.at("id").as_string());
  EXPECT_EQ(json::parse(Get(port, "/v1/responses/" + id).body), first);

  const json::value second =
      json::parse(Post(port, "/v1/responses", With(kResponse, {{"previous_response_id", id}})).body);
  const json::value told = json::parse(Post(port, "/v1/responses",
                                            With(kResponse, {{"input",
                                                              {{{"role", "user"}, {"content", "hello"}},
                                                               {{"role", "assistant"}, {"content", expected}},
                                                               {{"role", "user"}, {"content", "hello"}}}}}))
                                           .body);
  EXPECT_EQ(second.at("usage").at("input_tokens"), told.at("usage").at("input_tokens"));
  EXPECT_GT(second.at("usage").at("input_tokens").as_int64(), first.at("usage").at("input_tokens").as_int64());

  // Another salt does not see it.
  const std::string salted = With(kResponse, {{"previous_response_id", id}, {"cache_salt", "other"}});
  EXPECT_EQ(Post(port, "/v1/responses", salted).status, 404);
  HttpClient client(port);
  client.Send("DELETE /v1/responses/" + id + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(json::parse(client.Read().body).at("deleted").as_bool());
  EXPECT_EQ(Get(port, "/v1/responses/" + id).status, 404);
  EXPECT_EQ(Post(port, "/v1/responses", With(kResponse, {{"previous_response_id", id}})).status, 404);
  const json::value unstored = json::parse(Post(port, "/v1/responses", With(kResponse, {{"store", false}})).body);
  EXPECT_EQ(Get(port, "/v1/responses/" + std::string(unstored.at("id").as_string())).status, 404);
}

/// The text of one piece of a stream of any protocol; "" where it has none.
std::string TextOfPiece(const json::value& piece) {
  for (const char* place :
       {"/choices/0/delta/content", "/choices/0/text", "/delta/text", "/message/content", "/response"}) {
    json::error_code error;
    const json::value* text = piece.find_pointer(place, error);
    if (text != nullptr && text->is_string()) return std::string(text->get_string());
  }
  const json::object& fields = piece.as_object();
  const bool delta = fields.contains("delta") && fields.at("type") == "response.output_text.delta";
  return delta ? std::string(fields.at("delta").as_string()) : "";
}

TEST(Protocols, CharactersStayWholeAndStopStringsAreNotSeen) {
  FakeWorldOptions options = Options();
  // Long enough to begin before the two characters, for which the tokenizer has bytes.
  options.text = "The wind was soft that day and all of the next \xF0\x9F\x8C\xB2\xF0\x9F\x90\xBB day.";
  FakeWorld world(options);
  const std::string common = R"("model":"fake","stream":true,)",
                    chat = R"("messages":[{"role":"user","content":"hello"}])";
  const std::string stop = "\"y. T\"";
  const std::pair<const char*, std::string> rows[] = {
      {kChatPath, "{" + common + R"("max_tokens":60,"stop":)" + stop + "," + chat + "}"},
      {"/v1/completions", "{" + common + R"("max_tokens":60,"prompt":"hello","stop":)" + stop + "}"},
      {"/v1/messages", "{" + common + R"("max_tokens":60,"stop_sequences":[)" + stop + "]," + chat + "}"},
      {"/api/chat", "{" + common + R"("options":{"num_predict":60,"stop":)" + stop + "}," + chat + "}"},
      {"/api/generate",
       "{" + common + R"("raw":true,"prompt":"hello","options":{"num_predict":60,"stop":[)" + stop + "]}}"},
      {"/v1/responses", "{" + common + R"("max_output_tokens":60,"input":"hello"})"}};
  for (const auto& [path, body] : rows) {
    SCOPED_TRACE(path);
    const HttpResponse reply = Post(world.port(), path, body);
    ASSERT_EQ(reply.status, 200) << reply.body;
    std::string text;
    const bool lines = reply.headers.at("content-type") == "application/x-ndjson";
    for (const std::string& event : lines ? std::vector<std::string>() : SseEvents(reply.body)) {
      const std::string data = event.substr(event.find("data: ") + 6);
      if (data != "[DONE]") text += TextOfPiece(json::parse(data));
    }
    if (lines) {
      for (const json::value& line : LinesOf(reply.body)) text += TextOfPiece(line);
    }
    EXPECT_EQ(text.find("\xEF\xBF\xBD"), std::string::npos) << text;
    if (std::string_view(path) == "/v1/responses") {  // Has no stop strings.
      EXPECT_THAT(text, HasSubstr("\xF0\x9F\x8C\xB2\xF0\x9F\x90\xBB day"));
    } else {
      EXPECT_THAT(text, ::testing::EndsWith("da"));
    }
  }
}

TEST(Protocols, AStreamThatFailsSaysSoAndCloses) {
  struct Row {
    const char* path;
    std::string body, error;
  };
  const Row rows[] = {
      {"/v1/messages", With(kMessage, {{"stream", true}, {"max_tokens", 4000}}), "event: error\ndata: "},
      {"/api/chat", R"({"model":"fake","messages":[{"role":"user","content":"hello"}]})", "{\"error\":\""},
      {"/v1/responses", R"({"model":"fake","input":"hello","stream":true})", "event: error\ndata: "},
      {kChatPath, kEndless, "data: {\"error\":"}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.path);
    FakeWorld world(Options());
    HttpClient client(world.port());
    client.SendPost(row.path, row.body);
    EXPECT_THAT(client.ReadUntil("soft"), HasSubstr("soft"));
    world.executor->Fail(absl::InternalError("the device is lost"));
    EXPECT_THAT(client.ReadUntil("the device is lost"), HasSubstr(row.error));
    EXPECT_TRUE(client.WaitForClose(milliseconds(5000)));
  }
}

TEST(Protocols, ALongPromptTellsItsProgress) {
  FakeWorldOptions options = Options();
  options.server.limits.begin = milliseconds(10);
  FakeWorld world(options);
  std::string text;
  for (int i = 0; i < 1500; ++i) text += "wind ";
  world.executor->Hold();
  HttpClient client(world.port());
  client.SendPost(kChatPath, With(kHelloStream, {{"messages", {{{"role", "user"}, {"content", text}}}}}));
  EXPECT_THAT(client.ReadUntil("assistant"), HasSubstr("200 OK"));  // It has begun, and waits.
  world.executor->Release();
  EXPECT_THAT(client.ReadUntil("[DONE]"), ::testing::ContainsRegex(": prompt [0-9]+/[0-9]+\n\n"));

  // A short one is read before there is anything to tell.
  EXPECT_EQ(Post(world.port(), kChatPath, kHelloStream).body.find(": prompt"), std::string::npos);
}

TEST(Protocols, EmbeddingsOfTextsAndTokens) {
  FakeWorld world(Options());
  const uint16_t port = world.port();
  const HttpResponse reply =
      Post(port, "/v1/embeddings", R"({"model":"fake","input":["a","the wind was soft",[1,2,3]]})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json::value body = json::parse(reply.body);
  const json::array& data = body.at("data").as_array();
  ASSERT_EQ(data.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(data[i].at("index").to_number<size_t>(), i);
    double square = 0;
    for (const json::value& x : data[i].at("embedding").as_array())
      square += x.to_number<double>() * x.to_number<double>();
    EXPECT_NEAR(square, 1, 1e-6);
  }
  // The fake state begins with the number of tokens, then 1, 2, 2.
  EXPECT_NEAR(data[2].at("embedding").at(0).to_number<double>(), 3 / std::sqrt(18.0), 1e-6);
  EXPECT_GT(body.at("usage").at("prompt_tokens").as_int64(), 5);

  const json::value text =
      json::parse(Post(port, "/v1/embeddings", R"({"input":[1,2,3],"encoding_format":"base64","dimensions":2})").body);
  std::string bytes;
  ASSERT_TRUE(absl::Base64Unescape(std::string(text.at("data").at(0).at("embedding").as_string()), &bytes));
  ASSERT_EQ(bytes.size(), 8u);
  float first = 0;
  std::memcpy(&first, bytes.data(), sizeof first);
  EXPECT_NEAR(first, 3 / std::sqrt(10.0), 1e-6);

  const json::value ollama = json::parse(Post(port, "/api/embed", R"({"model":"fake","input":"a"})").body);
  EXPECT_EQ(ollama.at("embeddings").at(0), data[0].at("embedding"));
  for (const char* bad :
       {R"({})", R"({"input":[]})", R"({"input":""})", R"({"input":5})", R"({"input":[5,"a"]})", R"({"input":[["a"]]})",
        R"({"input":[[]]})", R"({"input":"a","encoding_format":"hex"})", R"({"input":"a","dimensions":0})",
        R"({"input":"a","dimensions":5})", R"({"input":"a","kvist":{"capsule":true}})"}) {
    EXPECT_EQ(Post(port, "/v1/embeddings", bad).status, 400) << bad;
  }
  EXPECT_THAT(
      std::string(ErrorOf(Post(port, "/v1/embeddings", R"({"input":"a","dimensions":5})")).at("message").as_string()),
      HasSubstr("is 5, but vectors of this model have 4"));
  EXPECT_EQ(Post(port, "/api/embed", R"({"input":"a","dimensions":4,"truncate":true,"options":{"num_ctx":9}})").status,
            200);
  for (const char* bad : {R"({"input":"a","truncate":"yes"})", R"({"input":"a","options":[]})",
                          R"({"input":"a","options":{"num_ctx":"big"}})"}) {
    EXPECT_EQ(Post(port, "/api/embed", bad).status, 400) << bad;
  }
  const std::string too_long = json::serialize(json::object{{"input", std::string(60'000, 'x')}});
  EXPECT_EQ(ErrorOf(Post(port, "/v1/embeddings", too_long)).at("code"), "context_length_exceeded");
}

TEST(Protocols, TokensThereAndBack) {
  FakeWorld world(Options());
  const uint16_t port = world.port();
  const std::string text = "The wind was soft \xF0\x9F\x8C\xB2.";
  const json::value ids = json::parse(Post(port, "/tokenize", json::serialize(json::object{{"content", text}})).body);
  const json::value back =
      json::parse(Post(port, "/detokenize", json::serialize(json::object{{"tokens", ids.at("tokens")}})).body);
  EXPECT_EQ(back.at("content").as_string(), text);
  EXPECT_EQ(back.at("prompt").as_string(), text);
  const json::value counted = json::parse(
      Post(port, "/tokenize", json::serialize(json::object{{"prompt", text}, {"add_special_tokens", false}})).body);
  EXPECT_EQ(counted.at("tokens"), ids.at("tokens"));
  EXPECT_EQ(counted.at("count").to_number<size_t>(), ids.at("tokens").as_array().size());
  const json::value pieces = json::parse(
      Post(port, "/tokenize", json::serialize(json::object{{"content", text}, {"with_pieces", true}})).body);
  EXPECT_EQ(pieces.at("tokens").as_array().size(), ids.at("tokens").as_array().size());
  const json::value chat =
      json::parse(Post(port, "/tokenize", R"({"messages":[{"role":"user","content":"hello"}]})").body);
  EXPECT_GT(chat.at("count").as_int64(), 0);
  for (const char* bad :
       {R"({})", R"({"content":5})", R"([])", R"({"prompt":null})", R"({"content":"a","add_special_tokens":1})",
        R"({"prompt":"a","with_pieces":"no"})", R"({"content":"a","prompt":"b"})",
        R"({"prompt":"a","return_token_strs":true})", R"({"content":"a","content":"b"})",
        R"({"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":5})"}) {
    EXPECT_EQ(Post(port, "/tokenize", bad).status, 400) << bad;
  }
  for (const char* bad : {R"({})", R"({"tokens":5})", R"({"tokens":[-1]})", R"({"tokens":[99999999]})"}) {
    EXPECT_EQ(Post(port, "/detokenize", bad).status, 400) << bad;
  }
}

}  // namespace
}  // namespace kvist::serve
