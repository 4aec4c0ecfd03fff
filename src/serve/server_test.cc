#include "serve/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/json.hpp>

#include "base/status.h"
#include "serve/server_testutil.h"

namespace kvist::serve {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string TextOfStream(const std::string& body) {
  std::string text;
  for (const std::string& data : SseData(body)) {
    if (data == "[DONE]") break;
    const json::value chunk = json::parse(data);
    for (const auto& choice : chunk.at("choices").as_array()) {
      const json::object& delta = choice.at("delta").as_object();
      if (delta.contains("content")) text += std::string(delta.at("content").as_string());
    }
  }
  return text;
}

TEST(Server, AnswersSmallRequests) {
  FakeWorld world(Options());
  const uint16_t port = world.port();

  EXPECT_EQ(Get(port, "/health").body, R"({"status":"ok"})");
  const json::value models = json::parse(Get(port, "/v1/models").body);
  EXPECT_EQ(models.at("object").as_string(), "list");
  EXPECT_EQ(models.at("data").at(0).at("id").as_string(), "fake");
  EXPECT_EQ(json::parse(Get(port, "/v1/models/fake?x=1").body).at("object").as_string(), "model");
  EXPECT_EQ(json::parse(Get(port, "/v1/models/f%61ke").body).at("id").as_string(), "fake");

  const HttpResponse other = Get(port, "/v1/models/gpt-4");
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(ErrorOf(other).at("code").as_string(), "model_not_found");
  const HttpResponse nothing = Get(port, "/v1/nothing");
  EXPECT_EQ(nothing.status, 404);
  EXPECT_EQ(ErrorOf(nothing).at("type").as_string(), "invalid_request_error");
  const HttpResponse get_chat = Get(port, kChatPath);
  EXPECT_EQ(get_chat.status, 405);
  EXPECT_EQ(get_chat.headers.at("allow"), "POST, OPTIONS");
  EXPECT_EQ(Post(port, "/health", "{}").status, 405);
}

TEST(Server, ServesThePage) {
  FakeWorld world(Options());
  const HttpResponse page = Get(world.port(), "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.headers.at("content-type"), StartsWith("text/html"));
  EXPECT_THAT(page.headers.at("content-security-policy"), HasSubstr("default-src 'self'"));
  EXPECT_EQ(page.headers.at("x-content-type-options"), "nosniff");
  EXPECT_FALSE(page.body.empty());
  const HttpResponse again = Get(world.port(), "/", "If-None-Match: W/\"x\", " + page.headers.at("etag") + "\r\n");
  EXPECT_EQ(again.status, 304);
  EXPECT_EQ(Get(world.port(), "/../etc/passwd").status, 404);

  HttpClient client(world.port());
  client.Send("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const HttpResponse head = client.Read(/*to_head_request=*/true);
  EXPECT_EQ(head.headers.at("content-length"), std::to_string(page.body.size()));
  client.SendGet("/health");  // No body came between.
  EXPECT_EQ(client.Read().body, R"({"status":"ok"})");
}

TEST(Server, StreamAndWholeAnswerSayTheSame) {
  FakeWorld world(Options());
  const HttpResponse whole = Post(world.port(), kChatPath, kHello);
  ASSERT_EQ(whole.status, 200) << whole.body;
  const json::value body = json::parse(whole.body);
  const HttpResponse stream = Post(world.port(), kChatPath, kHelloStream);
  ASSERT_EQ(stream.status, 200) << stream.body;
  EXPECT_TRUE(stream.complete);
  EXPECT_EQ(stream.headers.at("content-type"), "text/event-stream");
  const std::vector<std::string> events = SseData(stream.body);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(json::parse(events.front()).at("choices").at(0).at("delta").at("role").as_string(), "assistant");
  EXPECT_EQ(json::parse(events[events.size() - 2]).at("choices").at(0).at("finish_reason").as_string(), "length");
  EXPECT_EQ(TextOfStream(stream.body), body.at("choices").at(0).at("message").at("content").as_string());
  EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), 8);
}

TEST(Server, SpeaksHttp10) {
  FakeWorld world(Options());
  HttpClient client(world.port());
  const std::string body = kHelloStream;
  client.Send("POST /v1/chat/completions HTTP/1.0\r\nHost: localhost\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  const HttpResponse response = client.Read();
  EXPECT_TRUE(response.complete);
  EXPECT_FALSE(response.headers.contains("transfer-encoding"));
  EXPECT_EQ(SseData(response.body).back(), "[DONE]");
}

TEST(Server, Http11NeedsOneHost) {
  FakeWorld world(Options());
  for (const char* bytes :
       {"GET /health HTTP/1.1\r\n\r\n", "GET /health HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n",
        "GET /health HTTP/1.0\r\nHost: localhost\r\nHost: localhost\r\n\r\n"}) {
    HttpClient client(world.port());
    client.Send(bytes);
    const HttpResponse response = client.Read();
    EXPECT_EQ(response.status, 400) << bytes;
    EXPECT_EQ(ErrorOf(response).at("type").as_string(), "invalid_request_error");
    EXPECT_THAT(std::string(ErrorOf(response).at("message").as_string()), HasSubstr("Host header"));
    EXPECT_TRUE(client.WaitForClose(milliseconds(5000)));
  }
}

TEST(Server, ConnectionsAreReusedAndPipelined) {
  FakeWorld world(Options());
  HttpClient client(world.port());
  for (int i = 0; i < 3; ++i) client.SendPost(kChatPath, i == 1 ? kHelloStream : kHello);
  client.SendGet("/health", "Connection: close\r\n");
  EXPECT_EQ(json::parse(client.Read().body).at("object").as_string(), "chat.completion");
  EXPECT_EQ(SseData(client.Read().body).back(), "[DONE]");
  EXPECT_EQ(json::parse(client.Read().body).at("object").as_string(), "chat.completion");
  const HttpResponse last = client.Read();
  EXPECT_EQ(last.status, 200);
  EXPECT_EQ(last.headers.at("connection"), "close");
  EXPECT_TRUE(client.WaitForClose(milliseconds(5000)));
}

TEST(Server, StreamThatAsksForItClosesTheConnection) {
  FakeWorld world(Options());
  HttpClient client(world.port());
  client.SendPost(kChatPath, kHelloStream, "Connection: close\r\n");
  const HttpResponse response = client.Read();
  EXPECT_EQ(SseData(response.body).back(), "[DONE]");
  EXPECT_EQ(response.headers.at("connection"), "close");
  EXPECT_TRUE(client.WaitForClose(milliseconds(5000)));
}

TEST(Server, WaitsForContinue) {
  FakeWorld world(Options());
  HttpClient client(world.port());
  const std::string body = kHello;
  client.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_EQ(client.Read().status, 100);
  client.Send(body);
  EXPECT_EQ(client.Read().status, 200);
}

TEST(Server, ErrorsHaveOpenAisShape) {
  FakeWorld world(Options());
  const HttpResponse bad =
      Post(world.port(), kChatPath, R"({"messages":[{"role":"user","content":"x"}],"temperature":9})");
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(bad.headers.at("content-type"), "application/json");
  const json::object error = ErrorOf(bad);
  EXPECT_EQ(error.at("type").as_string(), "invalid_request_error");
  EXPECT_EQ(error.at("param").as_string(), "temperature");
  EXPECT_TRUE(error.at("code").is_null());
  EXPECT_THAT(std::string(error.at("message").as_string()), HasSubstr("from 0 to 2"));

  EXPECT_EQ(Post(world.port(), kChatPath, "{").status, 400);
  EXPECT_EQ(Post(world.port(), kChatPath, R"({"model":"other","messages":[{"role":"user","content":"x"}]})").status,
            404);

  std::string long_text;
  for (int i = 0; i < 9000; ++i) long_text += "the wind ";
  for (const char* stream : {"true", "false"}) {
    const HttpResponse too_long = Post(world.port(), "/v1/completions",
                                       R"({"stream":)" + std::string(stream) + R"(,"prompt":")" + long_text + "\"}");
    EXPECT_EQ(too_long.status, 400);
    EXPECT_EQ(ErrorOf(too_long).at("code").as_string(), "context_length_exceeded");
    EXPECT_THAT(std::string(ErrorOf(too_long).at("message").as_string()), HasSubstr("8192"));
  }
  EXPECT_EQ(Post(world.port(), kChatPath, kHello, "Content-Encoding: gzip\r\n").status, 415);
}

TEST(Server, FullQueueIs429WithRetryAfter) {
  FakeWorldOptions options = Options();
  options.requests_max = 1;
  options.waiting_max = 1;
  FakeWorld world(options);
  world.executor->Hold();
  HttpClient first(world.port()), second(world.port());
  first.SendPost(kChatPath, kHello);
  ASSERT_TRUE(world.WaitForStats([](const auto& stats) { return stats.running == 1; }));
  second.SendPost(kChatPath, kHello);
  ASSERT_TRUE(world.WaitForStats([](const auto& stats) { return stats.waiting == 1; }));
  for (const char* body : {kHello, kHelloStream}) {
    const HttpResponse refused = Post(world.port(), kChatPath, body);
    EXPECT_EQ(refused.status, 429);
    EXPECT_GT(std::stoi(refused.headers.at("retry-after")), 0);
    EXPECT_EQ(ErrorOf(refused).at("type").as_string(), "rate_limit_error");
  }
  world.executor->Release();
  EXPECT_EQ(first.Read().status, 200);
  EXPECT_EQ(second.Read().status, 200);
}

TEST(Server, DisconnectCancelsAtOnce) {
  FakeWorld world(Options());
  world.executor->Hold();
  HttpClient whole(world.port()), stream(world.port()), pipelined(world.port()), waiting(world.port());
  whole.SendPost(kChatPath, kHello);
  stream.SendPost(kChatPath, kEndless);
  pipelined.SendPost(kChatPath, kEndless);
  pipelined.SendGet("/health");
  ASSERT_TRUE(world.WaitForStats([](const auto& stats) { return stats.running + stats.waiting == 3; }));
  whole.Close();
  stream.Close();
  pipelined.Close();
  // The step that they are in is still held; when it ends, so do they, and their blocks are free or cached.
  const std::string gone = "vllm:request_success_total{model_name=\"fake\",finished_reason=\"abort\"} 3\n";
  ASSERT_TRUE(world.WaitForStats(
      [&](const auto&) { return Get(world.port(), "/metrics").body.find(gone) != std::string::npos; }));
  world.executor->Release();
  ASSERT_TRUE(world.WaitForStats(IsIdle));
  const engine::EngineStats stats = world.engine->Stats();
  EXPECT_EQ(stats.finished_cancelled, 3u);
  EXPECT_EQ(stats.kv.frames.free + stats.kv.frames.cached, stats.kv.frames.total());

  // And in the middle of a stream.
  HttpClient late(world.port());
  late.SendPost(kChatPath, kEndless);
  EXPECT_THAT(late.ReadUntil("wind"), HasSubstr("wind"));
  late.Close();
  ASSERT_TRUE(world.WaitForStats([](const auto& s) { return IsIdle(s) && s.finished_cancelled == 4; }));
  EXPECT_EQ(Get(world.port(), "/health").status, 200);
}

TEST(Server, ErrorsOfTheEngineReachTheClient) {
  FakeWorld world(Options());
  HttpClient stream(world.port());
  stream.SendPost(kChatPath, kEndless);
  EXPECT_THAT(stream.ReadUntil("wind"), HasSubstr("wind"));
  world.executor->Hold();
  HttpClient whole(world.port());
  whole.SendPost(kChatPath, kHello);
  ASSERT_TRUE(world.WaitForStats([](const auto& stats) { return stats.running + stats.waiting == 2; }));
  world.executor->Fail(absl::DataLossError("the device is gone"));
  const std::string rest = stream.ReadUntil("0\r\n\r\n");
  EXPECT_THAT(
      rest,
      HasSubstr(R"(data: {"error":{"message":"the device is gone","type":"server_error","param":null,"code":null}})"));
  EXPECT_THAT(rest, ::testing::Not(HasSubstr("[DONE]")));
  const HttpResponse answer = whole.Read();
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(ErrorOf(answer).at("type").as_string(), "server_error");
  world.executor->Release();
  EXPECT_EQ(Post(world.port(), kChatPath, kHello).status, 200);  // The next one is well.
}

TEST(Server, SilenceIsFilledWithComments) {
  FakeWorldOptions options = Options();
  options.server.limits.begin = milliseconds(20);
  options.server.limits.comment = milliseconds(30);
  FakeWorld world(options);
  world.executor->Hold();
  HttpClient client(world.port());
  client.SendPost(kChatPath, kHelloStream);
  // The head and the role come although the engine has said nothing.
  EXPECT_THAT(client.ReadUntil(": keep-alive\n\n"), HasSubstr("\"role\":\"assistant\""));
  EXPECT_THAT(client.ReadUntil(": keep-alive\n\n"), HasSubstr(": keep-alive\n\n"));
  world.executor->Release();
  EXPECT_THAT(client.ReadUntil("[DONE]"), HasSubstr("[DONE]"));
}

TEST(Server, ClientThatDoesNotReadIsDropped) {
  FakeWorldOptions options = Options();
  options.server.limits.output_bytes_max = 64 << 10;
  options.server.limits.write = milliseconds(300);
  FakeWorld world(options);
  HttpClient client(world.port(), /*receive_buffer_bytes=*/4096);
  client.SendPost(kChatPath,
                  R"({"messages":[{"role":"user","content":"x"}],"stream":true,"logprobs":true,"top_logprobs":20})");
  ASSERT_TRUE(world.WaitForStats([](const auto& stats) { return IsIdle(stats) && stats.finished_cancelled == 1; }));
  EXPECT_TRUE(client.WaitForClose(milliseconds(20'000)));
  EXPECT_EQ(Get(world.port(), "/health").status, 200);
}

TEST(Server, HealthTellsStalledFromIdle) {
  VirtualClock clock;
  FakeWorldOptions options = Options();
  options.clock = &clock;
  FakeWorld world(options);
  constexpr int64_t kSecond = 1'000'000'000;
  clock.AdvanceTo(TimeNs{1000 * kSecond});  // A long time without work.
  EXPECT_EQ(Get(world.port(), "/health").status, 200);
  world.executor->Hold();
  HttpClient client(world.port());
  client.SendPost(kChatPath, kHello);
  ASSERT_TRUE(world.WaitForStats([](const auto& stats) { return stats.running == 1; }));
  EXPECT_EQ(Get(world.port(), "/health").status, 200);
  clock.AdvanceTo(TimeNs{1031 * kSecond});
  const HttpResponse stalled = Get(world.port(), "/health");
  EXPECT_EQ(stalled.status, 503);
  EXPECT_EQ(stalled.body, R"({"status":"stalled"})");
  world.executor->Release();
  EXPECT_EQ(client.Read().status, 200);
  EXPECT_EQ(Get(world.port(), "/health").status, 200);
}

TEST(Server, MetricsCountWhatHappened) {
  FakeWorld world(Options());
  Post(world.port(), kChatPath, kHello);
  Post(world.port(), kChatPath, "{");
  ASSERT_TRUE(world.WaitForStats(IsIdle));  // The answer can be there before the engine's figures are.
  const HttpResponse response = Get(world.port(), "/metrics");
  EXPECT_THAT(response.headers.at("content-type"), StartsWith("text/plain"));
  for (const char* line : {"vllm:generation_tokens_total{model_name=\"fake\"} 8\n",
                           "vllm:request_success_total{model_name=\"fake\",finished_reason=\"length\"} 1\n",
                           "vllm:num_requests_running{model_name=\"fake\"} 0\n",
                           "vllm:time_to_first_token_seconds_count{model_name=\"fake\"} 1\n",
                           "vllm:e2e_request_latency_seconds_count{model_name=\"fake\"} 1\n",
                           "vllm:time_per_output_token_seconds_count{model_name=\"fake\"} 1\n",
                           "kvist_http_requests_total{model_name=\"fake\",code=\"200\",route=\"chat\"} 1\n",
                           "kvist_http_requests_total{model_name=\"fake\",code=\"400\",route=\"chat\"} 1\n",
                           "kvist_http_connections{model_name=\"fake\"} "}) {
    EXPECT_THAT(response.body, HasSubstr(line));
  }
}

// ---- Access.

TEST(ServerAccess, KeysGuardTheApi) {
  FakeWorldOptions options = Options();
  options.server.api_keys = {"", "first-key", "second-key"};
  FakeWorld world(options);
  const uint16_t port = world.port();
  EXPECT_EQ(Get(port, "/health").status, 200);
  EXPECT_EQ(Get(port, "/").status, 200);
  for (const char* path : {"/v1/models", "/v1/models/fake", "/metrics"}) {
    EXPECT_EQ(Get(port, path).status, 401) << path;
    EXPECT_EQ(Get(port, path, "Authorization: Bearer wrong\r\n").status, 401) << path;
    EXPECT_EQ(Get(port, path, "Authorization: Bearer \r\n").status, 401) << path;
    EXPECT_EQ(Get(port, path, "Authorization: first-key\r\n").status, 401) << path;
    EXPECT_EQ(Get(port, path, "Authorization: Bearer second-key\r\n").status, 200) << path;
  }
  const HttpResponse refused = Post(port, kChatPath, kHello);
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(ErrorOf(refused).at("code").as_string(), "invalid_api_key");
  EXPECT_EQ(refused.headers.at("www-authenticate"), "Bearer");
  EXPECT_EQ(Post(port, kChatPath, kHello, "Authorization: bearer first-key\r\n").status, 200);
  // With a key any name and any origin may ask.
  EXPECT_EQ(Post(port, kChatPath, kHello, "Authorization: Bearer first-key\r\nOrigin: https://example.org\r\n").status,
            200);
}

TEST(ServerAccess, WithoutKeyStrangersPagesAreKeptOut) {
  FakeWorld world(Options());
  HttpClient rebound(world.port());
  rebound.Send("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_EQ(rebound.Read().status, 403);
  HttpClient probe(world.port());  // What has no name was not led here by one.
  probe.Send("GET /health HTTP/1.0\r\n\r\n");
  EXPECT_EQ(probe.Read().status, 200);
  EXPECT_EQ(Post(world.port(), kChatPath, kHello, "Origin: https://evil.example\r\n").status, 403);
  EXPECT_EQ(Post(world.port(), kChatPath, kHello, "Origin: null\r\n").status, 403);
  EXPECT_EQ(Post(world.port(), kChatPath, kHello, "Origin: http://localhost:5173\r\n").status, 200);
  EXPECT_FALSE(Get(world.port(), "/health", "Origin: http://localhost:5173\r\n")
                   .headers.contains("access-control-allow-origin"));
}

TEST(ServerAccess, CorsForOneOrigin) {
  FakeWorldOptions options = Options();
  options.server.cors_origin = "https://app.example";
  FakeWorld world(options);
  HttpClient client(world.port());
  client.Send(
      "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: "
      "https://app.example\r\nAccess-Control-Request-Method: POST\r\n\r\n");
  const HttpResponse preflight = client.Read();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "https://app.example");
  EXPECT_THAT(preflight.headers.at("access-control-allow-headers"), HasSubstr("Authorization"));
  const HttpResponse stream = Post(world.port(), kChatPath, kHelloStream, "Origin: https://app.example\r\n");
  EXPECT_EQ(stream.status, 200);
  EXPECT_EQ(stream.headers.at("access-control-allow-origin"), "https://app.example");
  EXPECT_EQ(Post(world.port(), kChatPath, kHello, "Origin: https://other.example\r\n").status, 403);
}

TEST(ServerAccess, ListeningRules) {
  FakeWorld world(Options());
  const ServedModel model{.id = "x", .tokenizer = world.tokenizer.get()};
  const auto create = [&](const std::string& host, uint16_t port, std::vector<std::string> keys) {
    ServerOptions options{.host = host, .port = port, .api_keys = std::move(keys)};
    options.unix_now_s = [] { return int64_t{0}; };
    const absl::Status early = Server::CheckOptions(options);
    absl::Status status = Server::Create(std::move(options), model, *world.engine, world.real_clock).status();
    EXPECT_EQ(early, status);
    return status;
  };
  EXPECT_TRUE(create("127.0.0.1", 0, {}).ok());
  EXPECT_TRUE(create("localhost", 0, {}).ok());
  EXPECT_TRUE(create("0.0.0.0", 0, {"key"}).ok());
  EXPECT_THAT(std::string(create("0.0.0.0", 0, {}).message()), HasSubstr("API key is required"));
  EXPECT_THAT(std::string(create("0.0.0.0", 0, {""}).message()), HasSubstr("API key is required"));
  EXPECT_TRUE(absl::IsAlreadyExists(create("127.0.0.1", world.port(), {})));
  EXPECT_THAT(std::string(create("127.0.0.1", world.port(), {}).message()), HasSubstr("in use"));
  EXPECT_TRUE(absl::IsInvalidArgument(create("no.such.host.invalid", 0, {})));
  EXPECT_THAT(std::string(create("", 0, {"key"}).message()), HasSubstr("--host is empty"));
  EXPECT_TRUE(absl::IsInvalidArgument(create("203.0.113.7", 0, {"key"})));  // Not an address of this machine.
}

}  // namespace
}  // namespace kvist::serve
