// What requests use, over HTTP: sums equal to what clients were told, whatever became of the requests.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "base/status.h"
#include "platform/temp_folder.h"
#include "serve/server.h"
#include "serve/server_testutil.h"

namespace kvist::serve {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;

class ServerUsage : public testing::Test {
 protected:
  ServerUsage() {
    std::ofstream(folder_.path() + "/prices.toml")
        << "[machine]\ncost_per_hour = 3600.0\n[price]\nper_million_generated_tokens = 1e6\n";
    std::ofstream(folder_.path() + "/tenants.toml") << R"(
[[tenant]]
name = "ann"
keys = ["ann-key-1"]
prices = "prices.toml"
[[tenant]]
name = "bob"
keys = ["bob-key-1"]
[[tenant]]
name = "root"
keys = ["root-key-1"]
admin = true
)";
    FakeWorldOptions options = Options();
    options.waiting_max = 4;
    options.requests_max = 2;
    options.server.tenants_file = folder_.path() + "/tenants.toml";
    options.server.usage_db = folder_.path() + "/usage.db";
    world_ = std::make_unique<FakeWorld>(options);
  }
  HttpResponse Ask(const std::string& body, const std::string& who = "ann") {
    return Post(world_->port(), kChatPath, body, KeyOf(who));
  }
  static std::string KeyOf(const std::string& who) { return "Authorization: Bearer " + who + "-key-1\r\n"; }
  json::array Usage(const std::string& query, const std::string& who = "root") {
    const HttpResponse response = Get(world_->port(), "/kvist/usage" + query, KeyOf(who));
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body).at("data").as_array();
  }
  static int64_t Count(const json::value& row, const char* name) { return row.at(name).to_number<int64_t>(); }

  TempFolder folder_ = *TempFolder::Create(testing::TempDir());
  std::unique_ptr<FakeWorld> world_;
};

TEST_F(ServerUsage, AddsUpToWhatClientsWereTold) {
  int64_t prompt = 0, cached = 0, output = 0;
  for (const char* more :
       {R"("max_tokens":9)", R"("max_tokens":9,"n":3)", R"("max_tokens":1)", R"("max_tokens":9,"stop":"soft")"}) {
    const std::string body = std::string(R"({"messages":[{"role":"user","content":"tell me"}],)") + more + "}";
    const HttpResponse response = Ask(body);
    ASSERT_EQ(response.status, 200) << response.body;
    const json::value usage = json::parse(response.body).at("usage");
    prompt += Count(usage, "prompt_tokens");
    cached += Count(usage.at("prompt_tokens_details"), "cached_tokens");
    output += Count(usage, "completion_tokens");
  }
  Ask(kHello, "bob");
  const json::array rows = Usage("");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("tenant").as_string(), "ann");
  EXPECT_EQ(Count(rows[0], "requests"), 4);
  EXPECT_EQ(Count(rows[0], "prompt_tokens"), prompt);
  EXPECT_EQ(Count(rows[0], "cached_tokens"), cached);
  EXPECT_EQ(Count(rows[0], "generated_tokens"), output);
  EXPECT_GT(rows[0].at("cost").to_number<double>(), 0);
  EXPECT_EQ(rows[0].at("revenue").to_number<double>(), static_cast<double>(output));
  EXPECT_FALSE(rows[1].as_object().contains("cost"));
  const json::array requests = Usage("?group_by=request&tenant=bob");
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_THAT(std::string(requests[0].at("request").as_string()), HasSubstr("chatcmpl-"));
}

TEST_F(ServerUsage, EachOfSeveralTextsIsCounted) {
  const HttpResponse response =
      Post(world_->port(), "/v1/embeddings", R"({"input":["one two","three four five"]})", KeyOf("ann"));
  ASSERT_EQ(response.status, 200) << response.body;
  const json::array rows = Usage("?group_by=request");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(std::string(rows[1].at("request").as_string()), std::string(rows[0].at("request").as_string()) + "/1");
  EXPECT_EQ(Count(rows[0], "prompt_tokens") + Count(rows[1], "prompt_tokens"),
            Count(json::parse(response.body).at("usage"), "prompt_tokens"));
}

TEST_F(ServerUsage, TenantsSeeTheirOwnAndQueriesAreChecked) {
  Ask(kHello);
  Ask(kHello, "bob");
  for (const char* query : {"", "?tenant=ann", "?group_by=tenant,day"}) {
    const json::array rows = Usage(query, "bob");
    ASSERT_EQ(rows.size(), 1u) << query;
    EXPECT_EQ(rows[0].at("tenant").as_string(), "bob") << query;
  }
  EXPECT_EQ(Count(Usage("?group_by=", "bob").at(0), "requests"), 1);
  EXPECT_EQ(Get(world_->port(), "/kvist/usage").status, 401);
  EXPECT_EQ(Get(world_->port(), "/kvist/usage?form=1", KeyOf("root")).status, 400);
  const HttpResponse metrics = Get(world_->port(), "/metrics", KeyOf("root"));
  EXPECT_THAT(metrics.body, HasSubstr("kvist_tenant_requests_total{model_name=\"fake\",tenant=\"ann\"} 1"));
  EXPECT_THAT(metrics.body, HasSubstr("kvist_tenant_requests_open{model_name=\"fake\",tenant=\"bob\"} 0"));
}

TEST_F(ServerUsage, CancelledFailedAndRefusedRequestsAreCountedToo) {
  {
    HttpClient stream(world_->port());
    stream.SendPost(kChatPath, kEndless, KeyOf("ann"));
    stream.ReadUntil("content");
  }
  ASSERT_TRUE(world_->WaitForStats([](const auto& stats) { return IsIdle(stats) && stats.finished_cancelled == 1; }));
  world_->executor->Hold();
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 9; ++i) {  // Two run, four wait, the rest is refused.
    clients.push_back(std::make_unique<HttpClient>(world_->port()));
    clients.back()->SendPost(kChatPath, kHello, KeyOf("ann"));
  }
  ASSERT_TRUE(world_->WaitForStats([](const auto& stats) { return stats.finished_error >= 3; }));
  clients.pop_back();
  world_->executor->Fail(absl::InternalError("lost"));
  world_->executor->Release();
  for (const auto& client : clients) client->Read();
  ASSERT_TRUE(world_->WaitForStats(IsIdle));
  const json::value row = Usage("").at(0);
  const engine::EngineStats stats = world_->engine->Stats();
  EXPECT_EQ(static_cast<uint64_t>(Count(row, "generated_tokens")), stats.generated_tokens);
  EXPECT_EQ(static_cast<uint64_t>(Count(row, "prompt_tokens")), stats.prompt_tokens);
  EXPECT_EQ(static_cast<uint64_t>(Count(row, "computed_tokens")), stats.computed_tokens);
  EXPECT_EQ(static_cast<uint64_t>(Count(row, "failed")), stats.finished_error);
  EXPECT_EQ(Count(row, "requests"), 10);
  EXPECT_NEAR(row.at("step_seconds").to_number<double>(), static_cast<double>(stats.step_ns) * 1e-9, 1e-8);
}

TEST_F(ServerUsage, AddsUpUnderLoadWithCancels) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 30; ++i) {
        HttpClient client(world_->port());
        client.SendPost(kChatPath, i % 3 == 0 ? kEndless : kHelloStream, KeyOf(t % 2 == 0 ? "ann" : "bob"));
        i % 3 == 0 ? client.ReadUntil("content", std::chrono::seconds(5))
                   : client.ReadUntil("[DONE]", std::chrono::seconds(5));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(world_->WaitForStats(IsIdle));
  const json::value row = Usage("?group_by=").at(0);
  const engine::EngineStats stats = world_->engine->Stats();
  EXPECT_EQ(Count(row, "requests"), 120);
  EXPECT_EQ(static_cast<uint64_t>(Count(row, "generated_tokens")), stats.generated_tokens);
  EXPECT_EQ(static_cast<uint64_t>(Count(row, "computed_tokens")), stats.computed_tokens);
  EXPECT_EQ(static_cast<uint64_t>(Count(row, "cached_tokens")), stats.cached_tokens);
}

}  // namespace
}  // namespace kvist::serve
