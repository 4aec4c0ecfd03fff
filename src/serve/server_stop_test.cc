#include "serve/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/server_testutil.h"

namespace kvist::serve {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(ServerStop, OpenStreamsFinishAndNewOnesAreRefused) {
  FakeWorld world(Options());
  world.executor->Hold();
  HttpClient stream(world.port()), whole(world.port()), idle(world.port()), half(world.port());
  stream.SendPost(kChatPath, kHelloStream);
  whole.SendPost(kChatPath, kHello);
  idle.SendGet("/health");
  EXPECT_EQ(idle.Read().status, 200);
  half.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n");
  ASSERT_TRUE(world.WaitForStats([](const auto& stats) { return stats.running + stats.waiting == 2; }));
  world.server->server().RequestStop();
  EXPECT_TRUE(idle.WaitForClose(milliseconds(10'000)));
  EXPECT_TRUE(half.WaitForClose(milliseconds(10'000)));
  EXPECT_FALSE(HttpClient(world.port()).connected());
  world.executor->Release();
  EXPECT_EQ(SseData(stream.Read().body).back(), "[DONE]");
  const HttpResponse answer = whole.Read();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("connection"), "close");
  world.server->Join();
  EXPECT_TRUE(IsIdle(world.engine->Stats()));
}

TEST(ServerStop, HalfSentRequestsDoNotHoldItUp) {
  FakeWorld world(Options());
  const std::string post = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n";
  HttpClient fresh(world.port()), head(world.port()), body(world.port()), second(world.port());
  head.Send(post);
  body.Send(post + "Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n");
  EXPECT_EQ(body.Read().status, 100);
  body.Send("{");
  second.SendGet("/health");
  EXPECT_EQ(second.Read().status, 200);
  second.Send("GET /hea");
  std::this_thread::sleep_for(milliseconds(50));  // For the server to have read it all.
  const auto begin = std::chrono::steady_clock::now();
  world.server->server().RequestStop();
  world.server->Join();  // No client has closed.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(900));
  for (HttpClient* client : {&fresh, &head, &body, &second}) EXPECT_TRUE(client->WaitForClose(milliseconds(1000)));
}

TEST(ServerStop, SecondRequestFailsWhatIsOpen) {
  FakeWorld world(Options());
  HttpClient stream(world.port()), whole(world.port());
  stream.SendPost(kChatPath, kEndless);
  EXPECT_THAT(stream.ReadUntil("wind"), HasSubstr("wind"));
  world.executor->Hold();
  whole.SendPost(kChatPath, kHello);
  ASSERT_TRUE(world.WaitForStats([](const auto& stats) { return stats.running + stats.waiting == 2; }));
  world.server->server().RequestStop();
  world.server->server().RequestStop();
  const std::string rest = stream.ReadUntil("0\r\n\r\n");
  EXPECT_THAT(rest, HasSubstr("data: {\"error\":{\"message\":\"the server is shutting down\""));
  EXPECT_THAT(rest, ::testing::Not(HasSubstr("[DONE]")));
  EXPECT_TRUE(stream.WaitForClose(milliseconds(10'000)));
  const HttpResponse answer = whole.Read();
  EXPECT_EQ(answer.status, 503);
  EXPECT_TRUE(answer.complete);
  whole.Close();
  world.executor->Release();
  world.server->Join();
  EXPECT_TRUE(IsIdle(world.engine->Stats()));
}

TEST(ServerStop, DrainHasAnEnd) {
  FakeWorldOptions options = Options();
  options.server.drain = milliseconds(50);
  FakeWorld world(options);
  HttpClient stream(world.port());
  stream.SendPost(kChatPath, kEndless);
  EXPECT_THAT(stream.ReadUntil("wind"), HasSubstr("wind"));
  world.server->server().RequestStop();
  EXPECT_THAT(stream.ReadUntil("0\r\n\r\n"), HasSubstr("shutting down"));
  stream.Close();
  world.server->Join();
}

/// A chat whose schema is compared for a minute before it is known that no value satisfies it.
std::string SlowSchemaChat() {
  std::string parts[2];
  for (int i = 0; i < 300'000; ++i) parts[i % 2] += (parts[i % 2].empty() ? "" : ",") + std::to_string(i);
  return R"({"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"name":"s",)"
         R"("schema":{"allOf":[{"enum":[)" +
         parts[0] + R"(]},{"enum":[)" + parts[1] + "]}]}}}}";
}

TEST(ServerStop, ASchemaIsLeftWhenItsClientIs) {
  FakeWorldOptions options = Options();
  options.server.drain = std::chrono::seconds(600);
  FakeWorld world(options);
  HttpClient client(world.port());
  client.SendPost(kChatPath, SlowSchemaChat());
  std::this_thread::sleep_for(milliseconds(500));  // For the server to have begun.
  client.Close();
  const auto begin = std::chrono::steady_clock::now();
  world.server->server().RequestStop();
  world.server->Join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(ServerStop, SchemasThatTakeLongLeaveTheServerToOthers) {
  FakeWorld world(Options());
  std::vector<HttpClient> slow;
  for (int i = 0; i < 3; ++i) {
    slow.emplace_back(world.port());
    slow.back().SendPost(kChatPath, SlowSchemaChat());
    if (i == 0) std::this_thread::sleep_for(milliseconds(500));  // For the server to have begun.
  }
  EXPECT_EQ(slow[1].Read().status, 503) << "the first is at work";
  EXPECT_EQ(slow[2].Read().status, 503);
  EXPECT_EQ(Post(world.port(), kChatPath, kHello).status, 200);
}

TEST(ServerStop, ASchemaIsLeftWhenTheDrainEnds) {
  FakeWorldOptions options = Options();
  options.server.drain = milliseconds(50);
  FakeWorld world(options);
  HttpClient client(world.port());
  client.SendPost(kChatPath, SlowSchemaChat());
  std::this_thread::sleep_for(milliseconds(500));
  const auto begin = std::chrono::steady_clock::now();
  world.server->server().RequestStop();
  const HttpResponse answer = client.Read();
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("shutting down"));
  client.Close();
  world.server->Join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(ServerStop, ClientsThatHangAreCutOff) {
  FakeWorldOptions options = Options();
  options.server.drain = milliseconds(10);
  options.server.limits.output_bytes_max = 1 << 30;
  FakeWorld world(options);
  HttpClient deaf(world.port(), /*receive_buffer_bytes=*/4096);  // Reads nothing, not even the error.
  deaf.SendPost(kChatPath,
                R"({"messages":[{"role":"user","content":"x"}],"stream":true,"logprobs":true,"top_logprobs":20})");
  ASSERT_TRUE(world.WaitForStats([](const auto& stats) { return stats.generated_tokens > 50; }));
  const auto begin = std::chrono::steady_clock::now();
  world.server->server().RequestStop();
  world.server->Join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace kvist::serve
