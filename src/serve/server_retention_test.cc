// What clients wish to be kept, over HTTP, on a clock that moves when told.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"
#include "serve/server_testutil.h"

namespace kvist::serve {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;

class ServerRetention : public testing::Test {
 protected:
  ServerRetention() : world_(WithClock(&clock_)) {}

  static FakeWorldOptions WithClock(const Clock* clock) {
    FakeWorldOptions options = Options();
    options.context_tokens_max = 256;  // 64 blocks, 32 of which can be pinned.
    options.clock = clock;
    return options;
  }
  json::value Ask(const char* path, const std::string& body) {
    const HttpResponse response = Post(world_.port(), path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body);
  }
  /// A prompt of so many tokens that begins with `first`.
  static std::string Body(int first, int tokens, std::string_view own) {
    std::string body = R"({"max_tokens":4,"ignore_eos":true,"kvist":)" + std::string(own) + R"(,"prompt":[)";
    for (int i = 0; i < tokens; ++i) body += Cat(i == 0 ? "" : ",", 10 + (first + i) % 900);
    return body + "]}";
  }
  json::value Memory() { return json::parse(Get(world_.port(), "/kvist/memory").body); }
  static int64_t Cached(const json::value& reply) {
    return reply.at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64();
  }

  VirtualClock clock_;
  FakeWorld world_;
};

TEST_F(ServerRetention, RangesShowUpWithTheirTimeAndAreForgotten) {
  Ask(kTextPath, Body(0, 100, R"({"retain":[{"end":50,"priority":"pinned","seconds":60,"then":"forget"}]})"));
  const json::value memory = Memory();
  EXPECT_EQ(memory.at("retained_blocks").at("pinned").as_int64(), 4);
  EXPECT_EQ(memory.at("retained_blocks").at("pinned_max").as_int64(), 32);
  const json::object& retention = memory.at("nodes").at(0).at("retention").as_object();
  EXPECT_EQ(retention.at("class").as_string(), "pinned");
  EXPECT_EQ(retention.at("pinned_blocks").as_int64(), 4);
  EXPECT_NEAR(retention.at("seconds_left").to_number<double>(), 60, 0.001);
  EXPECT_NEAR(retention.at("forgotten_in_seconds").to_number<double>(), 60, 0.001);
  EXPECT_THAT(Get(world_.port(), "/metrics").body, HasSubstr("kvist_kv_retained_blocks{class=\"pinned\""));
  clock_.AdvanceTo(TimeNs{60'000'000'000});
  const json::value after = Memory();
  EXPECT_EQ(after.at("blocks").at("free"), after.at("blocks").at("total"));  // What followed went with it.
  EXPECT_EQ(after.at("since_start").at("forgotten_blocks").as_int64(), 7);
}

TEST_F(ServerRetention, MarksOfMessagesHoldForTheMessageAndWhatComesBeforeIt) {
  const std::string text(50, 'x');
  const auto body = [&](const char* mark) {
    return Cat(R"({"max_tokens":2,"messages":[{"role":"system","content":"one )", text, R"("},)",
               R"({"role":"user","content":"two )", text, R"(","kvist":)", mark, R"(},)",
               R"({"role":"user","content":"three )", text, R"("}]})");
  };
  const json::value reply = Ask(kChatPath, body(R"({"retain":"pinned"})"));
  const int64_t pinned = reply.at("kvist").at("retained").at("pinned_blocks").as_int64();
  const int64_t blocks = Memory().at("blocks").at("cached").as_int64();
  EXPECT_EQ(reply.at("kvist").at("retained").at("not_pinned_blocks").as_int64(), 0);
  EXPECT_GT(pinned, blocks / 2);
  EXPECT_LT(pinned, blocks);
  const HttpResponse refused = Post(world_.port(), kChatPath, body(R"({"retain":"for ever"})"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(ErrorOf(refused).at("param").as_string(), "messages[1].kvist.retain");
}

TEST_F(ServerRetention, WhatCannotBeMeantIsRefused) {
  for (const char* own :
       {R"({"retain":[{"begin":9,"end":3,"priority":"high"}]})", R"({"retain":[{"end":101,"priority":"high"}]})",
        R"({"retain":{"priority":"high","seconds":NaN}})", R"({"retain":{"priority":"high","seconds":1e999}})",
        R"({"retain":{"priority":"high","forever":true}})"}) {
    EXPECT_EQ(Post(world_.port(), kTextPath, Body(0, 100, own)).status, 400) << own;
  }
  const std::string chat =
      R"({"messages":[{"role":"user","content":"x"}],"kvist":{"retain":[{"end":1,"priority":"low"}]}})";
  EXPECT_THAT(std::string(ErrorOf(Post(world_.port(), kChatPath, chat)).at("message").as_string()),
              HasSubstr("/v1/completions"));
}

TEST_F(ServerRetention, TwoTenantsThatPinAllTheyCanStopNobody) {
  for (int i = 0; i < 6; ++i) {
    const std::string own = Cat(R"({"cache_salt":"tenant-)", i % 2, R"(","retain":"pinned"})");
    const json::value retained = Ask(kTextPath, Body(i * 100, 240, own)).at("kvist").at("retained");
    EXPECT_EQ(retained.at("pinned_blocks").as_int64() + retained.at("not_pinned_blocks").as_int64(), 16);
    EXPECT_EQ(retained.at("not_pinned_blocks").as_int64() > 0, i >= 2);
  }
  EXPECT_EQ(Memory().at("retained_blocks").at("pinned").as_int64(), 32);
  for (int i = 0; i < 6; ++i) {
    Ask(kTextPath, Body(1000 + i * 100, 240, R"({"cache_salt":"somebody else"})"));
  }
  // Both still find what they pinned first; what was too much for that is gone.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Cached(Ask(kTextPath, Body(i * 100, 240, Cat(R"({"cache_salt":"tenant-)", i, R"("})")))), 239);
  }
}

TEST_F(ServerRetention, AThousandRangesAreReadAndMore) {
  std::string ranges;
  for (int i = 0; i < 1000; ++i) {
    ranges += Cat(i == 0 ? "" : ",", R"({"begin":)", i % 100, R"(,"priority":")", i % 2 == 0 ? "high" : "low",
                  R"(","seconds":)", i, "}");
  }
  Ask(kTextPath, Body(0, 100, Cat(R"({"retain":[)", ranges, "]}")));
  EXPECT_EQ(Memory().at("retained_blocks").at("high").as_int64(), 7);
  EXPECT_EQ(Post(world_.port(), kTextPath, Body(0, 100, Cat(R"({"retain":[)", ranges, ",", ranges, "]}"))).status, 400);
}

}  // namespace
}  // namespace kvist::serve
