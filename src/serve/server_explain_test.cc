// GET /kvist/requests and /kvist/requests/ID.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/server_testutil.h"

namespace kvist::serve {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;

constexpr char kRequestsPath[] = "/kvist/requests";
constexpr char kSecretive[] =
    R"({"messages":[{"role":"user","content":"my secret is a heron by the river, tell nobody"}],"max_tokens":8})";

std::string IdOf(const HttpResponse& response) {
  return std::string(json::parse(response.body).at("id").as_string());
}

json::value Explain(uint16_t port, const std::string& id) {
  const HttpResponse response = Get(port, kRequestsPath + ("/" + id));
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.headers.at("cache-control"), "no-store");
  return json::parse(response.body);
}

TEST(ServerExplain, TellsWhatBecameOfARequest) {
  FakeWorld world(Options());
  EXPECT_TRUE(json::parse(Get(world.port(), kRequestsPath).body).at("data").as_array().empty());
  const std::string first = IdOf(Post(world.port(), kChatPath, kSecretive));
  const std::string second = IdOf(Post(world.port(), kChatPath, kSecretive));
  const HttpResponse list = Get(world.port(), kRequestsPath);
  EXPECT_EQ(json::parse(list.body).at("data").at(0).at("id").as_string(), second);
  EXPECT_EQ(json::parse(list.body).at("data").at(1).at("id").as_string(), first);

  const json::value cold = Explain(world.port(), first), warm = Explain(world.port(), second);
  const json::value& tokens = cold.at("choices").at(0).at("tokens");
  EXPECT_EQ(tokens.at("computed").as_int64(), tokens.at("prompt").as_int64() + 7);
  EXPECT_EQ(tokens.at("output").as_int64(), 8);
  EXPECT_EQ(tokens.at("reused").as_int64(), 0);
  const json::array& from = warm.at("choices").at(0).at("reused_from").as_array();
  ASSERT_FALSE(from.empty());
  for (const json::value& part : from) {
    EXPECT_EQ(part.at("computed_by").as_string(), first);
    EXPECT_GE(part.at("ms_before").to_number<double>(), 0);
  }
  double sum = 0;
  for (const auto& phase : warm.at("phases_ms").as_object()) sum += phase.value().to_number<double>();
  EXPECT_NEAR(sum, warm.at("total_ms").to_number<double>(), 5);
  for (const std::string& body : {list.body, json::serialize(cold)}) {
    for (const char* word : {"heron", "secret", "wind"}) EXPECT_THAT(body, Not(HasSubstr(word)));
  }
}

TEST(ServerExplain, ChoicesAndStreamsAreThereToo) {
  FakeWorld world(Options());
  const std::string two =
      IdOf(Post(world.port(), kChatPath, R"({"messages":[{"role":"user","content":"hello"}],"max_tokens":4,"n":2})"));
  EXPECT_EQ(Explain(world.port(), two).at("choices").as_array().size(), 2u);
  const HttpResponse stream = Post(world.port(), kChatPath, kHelloStream);
  const std::string id(json::parse(SseData(stream.body).at(0)).at("id").as_string());
  EXPECT_EQ(Explain(world.port(), id).at("finish_reason").as_string(), "length");
}

TEST(ServerExplain, WhoseClientLeftIsLoggedWithWhatTheEngineSays) {
  FakeWorld world(Options());
  {
    HttpClient client(world.port());
    client.SendPost(kChatPath, kEndless);
    client.ReadUntil("wind");
  }
  ASSERT_TRUE(world.WaitForStats([](const engine::EngineStats& stats) { return stats.finished_cancelled == 1; }));
  json::value entry;
  for (int i = 0; i < 1000; ++i) {
    const json::value list = json::parse(Get(world.port(), kRequestsPath).body);
    if (list.at("data").as_array().empty()) continue;
    entry = Explain(world.port(), std::string(list.at("data").at(0).at("id").as_string()));
    if (!entry.at("choices").as_array().empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(entry.at("finish_reason").as_string(), "abort");
  EXPECT_GT(entry.at("choices").at(0).at("steps").at("count").as_int64(), 0);
}

TEST(ServerExplain, OnlyForThoseWithTheKey) {
  FakeWorldOptions options = Options();
  options.server.api_keys = {"secret"};
  FakeWorld world(options);
  const std::string key = "Authorization: Bearer secret\r\n";
  const std::string id = IdOf(Post(world.port(), kChatPath, kHello, key));
  for (const std::string& path : {std::string(kRequestsPath), kRequestsPath + ("/" + id)}) {
    EXPECT_EQ(Get(world.port(), path).status, 401);
    EXPECT_EQ(Get(world.port(), path, key).status, 200);
  }
  const HttpResponse unknown = Get(world.port(), "/kvist/requests/chatcmpl-0", key);
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(ErrorOf(unknown).at("code").as_string(), "request_not_found");
  EXPECT_EQ(Post(world.port(), kRequestsPath, "{}", key).status, 405);
}

}  // namespace
}  // namespace kvist::serve
