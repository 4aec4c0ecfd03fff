// What happens on a busy server: who leaves disturbs nobody, what cannot fit is refused at once, the rest finishes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/status.h"
#include "serve/server.h"
#include "serve/server_testutil.h"

namespace kvist::serve {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;

std::string Chat(const std::string& text, int max_tokens) {
  return Cat(R"({"messages":[{"role":"user","content":")", text, R"("}],"max_tokens":)", max_tokens, "}");
}
std::string TextOf(const HttpResponse& response) {
  return std::string(json::parse(response.body).at("choices").at(0).at("message").at("content").as_string());
}

TEST(ServerLoad, WhoLeavesTheQueueDisturbsNobody) {
  FakeWorldOptions options = Options();
  options.requests_max = 1;
  FakeWorld world(options);
  const std::string alone = TextOf(Post(world.port(), kChatPath, Chat("hello", 200)));
  HttpClient active(world.port());
  active.SendPost(kChatPath, Chat("hello", 200));
  ASSERT_TRUE(world.WaitForStats([](const auto& stats) { return stats.running == 1; }));
  std::vector<std::unique_ptr<HttpClient>> queued;
  for (int i = 0; i < 5; ++i) {
    queued.push_back(std::make_unique<HttpClient>(world.port()));
    queued.back()->SendPost(kChatPath, Chat(Cat("question ", i), 50));
  }
  ASSERT_TRUE(world.WaitForStats([](const auto& stats) { return stats.waiting == 5; }));
  queued.clear();
  ASSERT_TRUE(world.WaitForStats([](const auto& stats) { return stats.waiting == 0; }));
  EXPECT_EQ(world.engine->Stats().finished_cancelled, 5u);
  const HttpResponse response = active.Read();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(TextOf(response), alone);
  ASSERT_TRUE(world.WaitForStats(IsIdle));
  const kv::FrameCounts frames = world.engine->Stats().kv.frames;
  EXPECT_EQ(frames.referenced, 0u);
}

TEST(ServerLoad, APromptThatCannotFitIsRefusedAtOnceAndTheNextIsServed) {
  FakeWorldOptions options = Options();
  options.context_tokens_max = 256;
  FakeWorld world(options);
  world.executor->Hold();  // Nothing of it reaches the engine's steps.
  std::string text;
  for (int i = 0; i < 300; ++i) text += "wind ";
  const HttpResponse refused = Post(world.port(), kChatPath, Chat(text, 10));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(ErrorOf(refused).at("code").as_string(), "context_length_exceeded");
  const std::string message(ErrorOf(refused).at("message").as_string());
  EXPECT_THAT(message, HasSubstr("256"));
  EXPECT_THAT(message, ::testing::ContainsRegex("the prompt has [0-9]+ tokens"));
  EXPECT_EQ(world.executor->steps_begun(), 0u);
  world.executor->Release();
  EXPECT_EQ(Post(world.port(), kChatPath, Chat("wind", 10)).status, 200);
}

TEST(ServerLoad, ManyLongAnswersOverThePoolAllFinish) {
  FakeWorldOptions options = Options();
  options.context_tokens_max = 384;  // The pool has four times as many tokens.
  FakeWorld world(options);
  std::vector<std::string> texts(10);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < texts.size(); ++i) {
    threads.emplace_back([&, i] {
      const HttpResponse response = Post(world.port(), kChatPath, Chat(Cat(i, " hello"), 330));
      if (response.status == 200) texts[i] = TextOf(response);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(world.engine->Stats().preemptions, 0u);
  for (const std::string& text : texts) EXPECT_GT(text.size(), 330u);
  ASSERT_TRUE(world.WaitForStats(IsIdle));
  EXPECT_EQ(world.engine->Stats().finished_length, 10u);
  EXPECT_EQ(world.engine->Stats().kv.frames.referenced, 0u);
}

}  // namespace
}  // namespace kvist::serve
