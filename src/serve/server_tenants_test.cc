// Tenants over HTTP: who sees and takes what.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/status.h"
#include "platform/temp_folder.h"
#include "serve/server.h"
#include "serve/server_testutil.h"

namespace kvist::serve {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;

constexpr char kAnn[] = "Authorization: Bearer ann-key-1\r\n";
constexpr char kBob[] = "Authorization: Bearer bob-key-1\r\n";
constexpr char kRoot[] = "Authorization: Bearer root-key-1\r\n";
constexpr char kTenants[] = R"(
[[tenant]]
name = "ann"
keys = ["ann-key-1"]
[[tenant]]
name = "bob"
keys = ["bob-key-1"]
[[tenant]]
name = "root"
keys = ["root-key-1"]
admin = true
)";

class ServerTenants : public testing::Test {
 protected:
  /// @param more  lines of bob's table
  void Start(const std::string& more = "", uint32_t requests_max = 8) {
    Write(more);
    FakeWorldOptions options = Options();
    options.requests_max = requests_max;
    options.server.tenants_file = path_;
    world_ = std::make_unique<FakeWorld>(options);
  }
  void Write(const std::string& more) {
    std::string text = kTenants;
    text.insert(text.find("[[tenant]]\nname = \"root\""), more);
    std::ofstream(path_) << text;
  }
  uint16_t port() const { return world_->port(); }
  static json::array DataOf(const HttpResponse& response) {
    return json::parse(response.body).as_object().at("data").as_array();
  }
  static int64_t CachedOf(const HttpResponse& response) {
    return json::parse(response.body).at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64();
  }
  static std::string LongChat(const std::string& more = "") {
    std::string text;
    for (int i = 0; i < 40; ++i) text += "the wind was soft ";
    return R"({"messages":[{"role":"user","content":")" + text + R"("}],"max_tokens":4)" + more + "}";
  }

  TempFolder folder_ = *TempFolder::Create(testing::TempDir());
  std::string path_ = (std::filesystem::path(folder_.path()) / "tenants.toml").string();
  std::unique_ptr<FakeWorld> world_;
};

TEST_F(ServerTenants, KeysAreNeededAndEveryAnswerHasAnId) {
  Start();
  const HttpResponse none = Post(port(), kChatPath, kHello);
  EXPECT_EQ(none.status, 401);
  EXPECT_THAT(none.headers.at("x-request-id"), HasSubstr("req-"));
  EXPECT_EQ(Post(port(), kChatPath, kHello, "Authorization: Bearer ann-key-2\r\n").status, 401);
  const HttpResponse mine = Post(port(), kChatPath, kHello, std::string(kAnn) + "X-Request-Id: my.id:7\r\n");
  EXPECT_EQ(mine.status, 200);
  EXPECT_EQ(mine.headers.at("x-request-id"), "my.id:7");
  EXPECT_EQ(mine.headers.count("x-ratelimit-limit-requests"), 0u) << "no bound, no header";
  const HttpResponse odd = Post(port(), kChatPath, kHello, std::string(kAnn) + "X-Request-Id: <a href>\r\n");
  EXPECT_THAT(odd.headers.at("x-request-id"), HasSubstr("req-"));
  EXPECT_THAT(Get(port(), "/nowhere").headers.at("x-request-id"), HasSubstr("req-"));
  const std::string stream = [&] {
    HttpClient client(port());
    client.SendPost(kChatPath, kHelloStream, kAnn);
    return client.ReadUntil("[DONE]");
  }();
  EXPECT_THAT(stream, HasSubstr("x-request-id: req-"));
}

TEST_F(ServerTenants, CachedTextIsTheTenantsOwn) {
  Start();
  EXPECT_EQ(CachedOf(Post(port(), kChatPath, LongChat(), kAnn)), 0);
  EXPECT_GT(CachedOf(Post(port(), kChatPath, LongChat(), kAnn)), 0);
  EXPECT_EQ(CachedOf(Post(port(), kChatPath, LongChat(), kBob)), 0) << "another tenant";
  const std::string salted = LongChat(R"(,"kvist":{"cache_salt":"s"})");
  EXPECT_EQ(CachedOf(Post(port(), kChatPath, salted, kAnn)), 0) << "another salt";
  EXPECT_GT(CachedOf(Post(port(), kChatPath, salted, kAnn)), 0);
  EXPECT_EQ(CachedOf(Post(port(), kChatPath, salted, kBob)), 0) << "the same salt of another tenant";
}

TEST_F(ServerTenants, GroupsShareCachedText) {
  Start("shared = \"all\"\n[[tenant]]\nname = \"cat\"\nkeys = [\"cat-key-1\"]\nshared = \"all\"\n");
  constexpr char kCat[] = "Authorization: Bearer cat-key-1\r\n";
  EXPECT_EQ(CachedOf(Post(port(), kChatPath, LongChat(), kBob)), 0);
  EXPECT_GT(CachedOf(Post(port(), kChatPath, LongChat(), kCat)), 0);
  EXPECT_EQ(CachedOf(Post(port(), kChatPath, LongChat(), kAnn)), 0);
}

TEST_F(ServerTenants, RequestsAndCapsulesAreSeenByTheirOwnerAndAdmins) {
  Start();
  const HttpResponse answer = Post(port(), kChatPath, LongChat(R"(,"kvist":{"capsule":true})"), kAnn);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json::value body = json::parse(answer.body);
  const std::string id(body.at("id").as_string());
  const std::string capsule(body.at("choices").at(0).at("kvist").at("capsule").as_string());
  for (const std::string& path : {"/kvist/requests/" + id, "/kvist/capsules/" + capsule}) {
    EXPECT_EQ(Get(port(), path, kAnn).status, 200) << path;
    EXPECT_EQ(Get(port(), path, kRoot).status, 200) << path;
    EXPECT_EQ(Get(port(), path, kBob).status, 404) << path;
  }
  for (const char* path : {"/kvist/requests", "/kvist/capsules"}) {
    EXPECT_EQ(DataOf(Get(port(), path, kAnn)).size(), 1u) << path;
    EXPECT_EQ(DataOf(Get(port(), path, kRoot)).size(), 1u) << path;
    EXPECT_EQ(DataOf(Get(port(), path, kBob)).size(), 0u) << path;
  }
  const std::string restore = R"({"max_tokens":2,"kvist":{"restore":")" + capsule + R"("}})";
  EXPECT_EQ(Post(port(), "/v1/completions", restore, kBob).status, 404);
  EXPECT_EQ(Post(port(), "/v1/completions", restore, kRoot).status, 404) << "seen, but not the admin's to go on with";
  EXPECT_EQ(Post(port(), "/v1/completions", restore, kAnn).status, 200);
  HttpClient remove(port());
  remove.Send("DELETE /kvist/capsules/" + capsule + " HTTP/1.1\r\nHost: localhost\r\n" + kBob + "\r\n");
  EXPECT_EQ(remove.Read().status, 404);
  EXPECT_EQ(Get(port(), "/kvist/capsules/" + capsule, kAnn).status, 200);
}

TEST_F(ServerTenants, RunningRequestsAreTheirOwners) {
  Start();
  HttpClient stream(port());
  stream.SendPost(kChatPath, kEndless, kAnn);
  const std::string begun = stream.ReadUntil("content");
  const size_t at = begun.find("chatcmpl-");
  ASSERT_NE(at, std::string::npos);
  const std::string keep = R"({"request":")" + begun.substr(at, 41) + "\"}";
  EXPECT_EQ(Post(port(), "/kvist/capsules", keep, kBob).status, 400);
  EXPECT_EQ(Post(port(), "/kvist/capsules", keep, kAnn).status, 201);
  const json::value all = json::parse(Get(port(), "/kvist/memory", kRoot).body);
  EXPECT_EQ(all.at("requests").as_array().size(), 1u);
  EXPECT_EQ(all.at("requests").at(0).at("tenant"), "ann");
  const json::value own = json::parse(Get(port(), "/kvist/memory", kAnn).body);
  EXPECT_EQ(own.at("requests").as_array().size(), 1u);
  EXPECT_FALSE(own.as_object().contains("blocks")) << "what others hold shows in no figure";
  const json::value other = json::parse(Get(port(), "/kvist/memory", kBob).body);
  EXPECT_EQ(other.at("requests").as_array().size(), 0u);
  EXPECT_EQ(other.at("nodes_total").to_number<int>(), 0);
  for (const char* path : {"/metrics", "/kvist/state", "/kvist/steps"}) {
    EXPECT_EQ(Get(port(), path, kAnn).status, 403) << path;
    EXPECT_EQ(Get(port(), path, kRoot).status, 200) << path;
  }
}

TEST_F(ServerTenants, SessionsAreNotShared) {
  Start("shared = \"all\"\n[[tenant]]\nname = \"cat\"\nkeys = [\"cat-key-1\"]\nshared = \"all\"\n");
  const std::string first = R"({"messages":[{"role":"user","content":"one"},{"role":"user","content":"two"}],)"
                            R"("max_tokens":2,"kvist":{"session":"s"}})";
  const std::string second = R"({"messages":[{"role":"user","content":"one","kvist":{"drop":true}},)"
                             R"({"role":"user","content":"two"}],"max_tokens":2,"kvist":{"session":"s"}})";
  const auto dropped = [](const HttpResponse& response) {
    return json::parse(response.body).at("usage").at("prompt_tokens_details").as_object().contains("dropped_tokens");
  };
  EXPECT_FALSE(dropped(Post(port(), kChatPath, first, kBob)));
  EXPECT_FALSE(dropped(Post(port(), kChatPath, second, "Authorization: Bearer cat-key-1\r\n")))
      << "a session of this name of another tenant of the group";
  EXPECT_TRUE(dropped(Post(port(), kChatPath, second, kBob)));
}

TEST_F(ServerTenants, RequestRateIsRefusedEarlyWithHeaders) {
  Start("requests_per_minute = 2\n");
  const HttpResponse first = Post(port(), kChatPath, kHello, kBob);
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.headers.at("x-ratelimit-limit-requests"), "2");
  EXPECT_EQ(first.headers.at("x-ratelimit-remaining-requests"), "1");
  EXPECT_EQ(Post(port(), kChatPath, "not JSON", kBob).status, 400) << "counts too";
  HttpClient early(port());  // Refused before its body has come.
  early.Send(Cat("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n", kBob, "Content-Length: 1000000\r\n\r\n"));
  const HttpResponse refused = early.Read();
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(ErrorOf(refused).at("code").as_string(), "rate_limit_exceeded");
  EXPECT_EQ(ErrorOf(refused).at("type").as_string(), "rate_limit_error");
  EXPECT_GE(std::stoi(refused.headers.at("retry-after")), 25);
  EXPECT_EQ(refused.headers.at("x-ratelimit-remaining-requests"), "0");
  EXPECT_EQ(Get(port(), "/v1/models", kBob).status, 200) << "takes nothing of the model";
  EXPECT_EQ(Post(port(), kChatPath, kHello, kAnn).status, 200) << "others go on";
}

TEST_F(ServerTenants, ConcurrencyIsGivenBackHoweverARequestEnds) {
  Start("concurrent = 1\n");
  for (int round = 0; round < 3; ++round) {
    HttpClient stream(port());
    stream.SendPost(kChatPath, kEndless, kBob);
    stream.ReadUntil("content");
    const HttpResponse refused = Post(port(), kChatPath, kHello, kBob);
    EXPECT_EQ(refused.status, 429);
    EXPECT_EQ(ErrorOf(refused).at("code").as_string(), "concurrency_limit_exceeded");
    stream.Close();
    int status = 0;
    for (int i = 0; i < 1000 && status != 200; ++i) status = Post(port(), kChatPath, kHello, kBob).status;
    EXPECT_EQ(status, 200);
    EXPECT_EQ(Post(port(), kChatPath, "{", kBob).status, 400);
  }
}

TEST_F(ServerTenants, TokensPerMinuteCountPromptsAndOutputs) {
  Start("tokens_per_minute = 40\n");
  const HttpResponse first = Post(port(), kChatPath, kHello, kBob);
  ASSERT_EQ(first.status, 200);
  const HttpResponse large = Post(port(), kChatPath, LongChat(), kBob);
  EXPECT_EQ(large.status, 429);
  EXPECT_THAT(std::string(ErrorOf(large).at("message").as_string()), HasSubstr("the prompt has "));
  EXPECT_EQ(large.headers.at("x-ratelimit-limit-tokens"), "40");
}

TEST_F(ServerTenants, AreReadAgain) {
  Start();
  EXPECT_EQ(Post(port(), kChatPath, kHello, "Authorization: Bearer dan-key-1\r\n").status, 401);
  Write("[[tenant]]\nname = \"dan\"\nkeys = [\"dan-key-1\"]\n");
  world_->server->server().RequestReload();
  int status = 0;
  for (int i = 0; i < 1000 && status != 200; ++i) {
    status = Post(port(), kChatPath, kHello, "Authorization: Bearer dan-key-1\r\n").status;
  }
  EXPECT_EQ(status, 200);
}

TEST_F(ServerTenants, BadFilesAreRefusedBeforeAnything) {
  std::ofstream(path_) << "[[tenant]]\nname = 7\n";
  ServerOptions options{.port = 0, .tenants_file = path_};
  const absl::Status status = Server::CheckOptions(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'tenant[0].name' must be a string"));
  options.tenants_file = path_ + "x";
  EXPECT_EQ(Server::CheckOptions(options).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace kvist::serve
