#include "serve/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "base/status.h"
#include "serve/server_testutil.h"

namespace kvist::serve {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(ServerLimits, HeadsAndBodies) {
  FakeWorldOptions options = Options();
  options.server.limits.header_bytes_max = 4096;
  options.server.limits.body_bytes_max = 10'000;
  FakeWorld world(options);
  const uint16_t port = world.port();
  EXPECT_EQ(Get(port, "/health", "X: " + std::string(5000, 'x') + "\r\n").status, 431);
  EXPECT_EQ(Get(port, "/health", "X: " + std::string(1 << 20, 'x') + "\r\n").status, 431);
  EXPECT_EQ(Get(port, "/" + std::string(5000, 'x')).status, 431);
  const HttpResponse large = Post(port, kChatPath, std::string(10'001, ' '));
  EXPECT_EQ(large.status, 413);
  EXPECT_EQ(ErrorOf(large).at("type").as_string(), "invalid_request_error");

  HttpClient chunked(port);
  chunked.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "1000\r\n" + std::string(4096, ' ') + "\r\n";
  for (int i = 0; i < 3; ++i) chunked.Send(chunk);
  EXPECT_EQ(chunked.Read().status, 413);

  HttpClient whole_chunked(port);
  const std::string hello = kHello;
  whole_chunked.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  whole_chunked.Send("10\r\n" + hello.substr(0, 16) + "\r\n");
  whole_chunked.Send(Cat(absl::Hex(hello.size() - 16), "\r\n", hello.substr(16), "\r\n0\r\n\r\n"));
  EXPECT_EQ(whole_chunked.Read().status, 200);
}

TEST(ServerLimits, PromptsThatCannotFitAreNotTokenized) {
  FakeWorld world(Options());
  const size_t bytes_max = TextBytesMax(*world.tokenizer, 8192);
  EXPECT_GE(bytes_max, 8192u * 4);
  EXPECT_LT(bytes_max, 8u << 20);
  const std::string text(30u << 20, 'x');
  const std::string bodies[] = {R"({"prompt":")" + text + "\"}",
                                R"({"messages":[{"role":"user","content":")" + text + "\"}]}"};
  for (const bool chat : {false, true}) {
    const HttpResponse refused = Post(world.port(), chat ? kChatPath : "/v1/completions", bodies[chat]);
    EXPECT_EQ(refused.status, 400);
    const auto error = ErrorOf(refused);
    EXPECT_EQ(error.at("code").as_string(), "context_length_exceeded");
    EXPECT_EQ(error.at("param").as_string(), chat ? "messages" : "prompt");
    const std::string message(error.at("message").as_string());
    EXPECT_THAT(message, HasSubstr(Cat(text.size() + (chat ? 1 : 0), " bytes"))) << "the text, not the body";
    EXPECT_THAT(message, HasSubstr(Cat("8192 tokens holds at most ", bytes_max)));
  }
}

TEST(ServerLimits, SlowClients) {
  FakeWorldOptions options = Options();
  options.server.limits.header = milliseconds(150);
  options.server.limits.body = milliseconds(400);
  options.server.limits.body_gap = milliseconds(150);
  options.server.limits.idle = milliseconds(150);
  FakeWorld world(options);

  HttpClient silent(world.port());
  EXPECT_TRUE(silent.WaitForClose(milliseconds(10'000)));

  HttpClient dripping(world.port());  // Each byte soon enough, the head not.
  for (int i = 0; i < 200 && dripping.Send(i == 0 ? "GET /health HTTP/1.1\r\n" : "X"); ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(dripping.Read().status, 408);

  HttpClient stuck(world.port());
  stuck.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{");
  EXPECT_EQ(stuck.Read().status, 408);

  HttpClient slow_body(world.port());
  slow_body.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n");
  for (int i = 0; i < 200 && slow_body.Send(" "); ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(slow_body.Read().status, 408);

  HttpClient kept(world.port());  // Between two requests.
  kept.SendGet("/health");
  EXPECT_EQ(kept.Read().status, 200);
  EXPECT_TRUE(kept.WaitForClose(milliseconds(10'000)));
}

TEST(ServerLimits, Connections) {
  FakeWorldOptions options = Options();
  options.server.limits.connections_max = 3;
  FakeWorld world(options);
  std::vector<HttpClient> open;
  for (int i = 0; i < 3; ++i) {
    open.emplace_back(world.port());
    open.back().SendGet("/health");
    EXPECT_EQ(open.back().Read().status, 200);
  }
  HttpClient extra(world.port());
  const HttpResponse refused = extra.Read();  // Before it has asked anything.
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(ErrorOf(refused).at("type").as_string(), "server_error");
  open.clear();
  for (int i = 0; i < 400; ++i) {
    if (Get(world.port(), "/health").status == 200) return;
    std::this_thread::sleep_for(milliseconds(10));
  }
  FAIL() << "closed connections still count";
}

TEST(ServerLimits, ConnectionsOfOneAddress) {
  FakeWorldOptions options = Options();
  options.server.limits.connections_per_address_max = 2;
  FakeWorld world(options);
  HttpClient first(world.port()), second(world.port());
  for (HttpClient* client : {&first, &second}) {
    client->SendGet("/health");
    EXPECT_EQ(client->Read().status, 200);
  }
  EXPECT_EQ(HttpClient(world.port()).Read().status, 503);
  first.Close();
  for (int i = 0; i < 400; ++i) {
    if (Get(world.port(), "/health").status == 200) return;
    std::this_thread::sleep_for(milliseconds(10));
  }
  FAIL() << "a closed connection still counts";
}

TEST(ServerLimits, AnOverloadedServerSaysSoBeforeItReadsABody) {
  FakeWorldOptions options = Options();
  options.requests_max = 1;
  options.server.max_wait_s = 0.05;
  FakeWorld world(options);
  // A step takes a millisecond at least: requests end after some 200 ms, so one that has not ended goes on for long.
  const char outputs[] = R"({"messages":[{"role":"user","content":"hello"}],"max_tokens":200,"ignore_eos":true})";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Post(world.port(), kChatPath, outputs).status, 200);
  HttpClient busy(world.port());
  busy.SendPost(kChatPath, kEndless);
  busy.ReadUntil("content");
  HttpClient late(world.port());
  late.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n");
  const HttpResponse refused = late.Read();
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(ErrorOf(refused).at("code").as_string(), "server_overloaded");
  EXPECT_GE(std::stoi(refused.headers.at("retry-after")), 1);
  EXPECT_EQ(Get(world.port(), "/v1/models").status, 200);
  busy.Close();
  ASSERT_TRUE(world.WaitForStats(IsIdle));
  EXPECT_EQ(Post(world.port(), kChatPath, kHello).status, 200);
}

TEST(ServerLimits, AFloodOfHeaderLines) {
  FakeWorldOptions options = Options();
  FakeWorld world(options);
  std::string lines;
  for (int i = 0; i < 5000; ++i) lines += Cat("X-", i, ": 1\r\n");
  EXPECT_EQ(Get(world.port(), "/health", lines).status, 200) << "within 64 KiB";
  for (int i = 0; i < 5000; ++i) lines += Cat("Y-", i, ": 1\r\n");
  EXPECT_EQ(Get(world.port(), "/health", lines).status, 431);
}

TEST(ServerLimits, HostileBytes) {
  FakeWorldOptions options = Options();
  options.server.limits.header = milliseconds(500);
  FakeWorld world(options);
  Prng random(7);
  const std::string valid =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
      "60\r\n\r\n{\"messages\":[{\"role\":\"user\"";
  for (int round = 0; round < 150; ++round) {
    HttpClient client(world.port());
    std::string bytes = valid;
    if (round % 3 == 0) {
      bytes.clear();
      for (uint64_t i = 0, count = random.Below(2000); i < count; ++i) bytes += static_cast<char>(random.Next());
    } else {
      for (int i = 0; i < 3; ++i) bytes[random.Below(bytes.size())] = static_cast<char>(random.Next());
    }
    client.Send(bytes);
    if (round % 2 == 0) client.ReadUntil("\r\n", milliseconds(20));
  }
  for (const char* text :
       {"\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\nHost: localhost\n\n",
        "GET /\x01 HTTP/1.1\r\n\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}) {
    HttpClient client(world.port());
    client.Send(text);
    const HttpResponse response = client.Read(false, milliseconds(10'000));
    EXPECT_TRUE(response.status == 0 || (response.status >= 400 && response.status < 500))
        << text << " " << response.status;
  }
  EXPECT_EQ(Get(world.port(), "/health").status, 200);
  EXPECT_EQ(Post(world.port(), kChatPath, kHello).status, 200);
}

}  // namespace
}  // namespace kvist::serve
