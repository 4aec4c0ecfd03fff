// GET /kvist/state and /kvist/steps.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "serve/server_testutil.h"
#include "serve/state_view.h"

namespace kvist::serve {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;

json::value Fetch(uint16_t port, const std::string& path) {
  const HttpResponse response = Get(port, path);
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.headers.at("cache-control"), "no-store");
  return json::parse(response.body);
}

TEST(ServerState, AddsUpWithWhatWasAnswered) {
  FakeWorld world(Options());
  const json::value idle = Fetch(world.port(), "/kvist/state");
  EXPECT_EQ(idle.at("since_start").at("steps"), 0);
  EXPECT_TRUE(idle.at("steps").at("prediction_error").is_null());
  EXPECT_TRUE(idle.at("latency").at("ttft_ms").at("p50").is_null());
  const json::value answer = json::parse(Post(world.port(), kChatPath, kHello).body);
  ASSERT_TRUE(world.WaitForStats(IsIdle));
  const json::value state = Fetch(world.port(), "/kvist/state");
  const json::value &totals = state.at("since_start"), &usage = answer.at("usage");
  EXPECT_EQ(totals.at("output_tokens"), usage.at("completion_tokens"));
  EXPECT_EQ(totals.at("prompt_tokens"), usage.at("prompt_tokens"));
  EXPECT_EQ(totals.at("finished").at("length"), 1);
  EXPECT_EQ(state.at("steps").at("ms").at("count"), totals.at("steps"));
  EXPECT_GE(state.at("steps").at("prediction_error").to_number<double>(), 0);
  EXPECT_GE(state.at("steps").at("ms").at("p50").to_number<double>(), 1.0) << "the fake's steps take a millisecond";
  for (const char* which : {"ttft_ms", "tpot_ms", "e2e_ms"}) EXPECT_EQ(state.at("latency").at(which).at("count"), 1);
  EXPECT_LE(state.at("latency").at("ttft_ms").at("p99").to_number<double>(),
            state.at("latency").at("e2e_ms").at("p99").to_number<double>());
  EXPECT_GT(state.at("now_ms").to_number<double>(), idle.at("now_ms").to_number<double>());
  const json::value& blocks = state.at("tiers").at(0).at("blocks");
  EXPECT_EQ(blocks.at("free").as_int64() + blocks.at("cached").as_int64() + blocks.at("referenced").as_int64(),
            blocks.at("total").as_int64());
  EXPECT_TRUE(state.at("requests").as_array().empty());
}

TEST(ServerState, ShowsWhoRunsAndWhoWaits) {
  FakeWorldOptions options = Options();
  options.requests_max = 1;
  FakeWorld world(options);
  HttpClient first(world.port()), second(world.port());
  first.SendPost(kChatPath, kEndless);
  const std::string begin = first.ReadUntil("wind");
  second.SendPost(kChatPath, kEndless);
  ASSERT_TRUE(world.WaitForStats([](const engine::EngineStats& stats) { return stats.waiting == 1; }));
  const json::value state = Fetch(world.port(), "/kvist/state");
  EXPECT_EQ(state.at("counts"), (json::value{{"running", 1}, {"waiting", 1}, {"preempted", 0}}));
  const json::value &running = state.at("requests").at(0), &waiting = state.at("requests").at(1);
  EXPECT_EQ(running.at("state"), "running");
  EXPECT_THAT(begin, HasSubstr(std::string(running.at("id").as_string())));
  EXPECT_GT(running.at("output_tokens").as_int64(), 0);
  EXPECT_EQ(waiting.at("state"), "waiting");
  EXPECT_EQ(waiting.at("computed_tokens"), 0);
  const json::value memory = Fetch(world.port(), "/kvist/memory");
  EXPECT_EQ(memory.at("requests").at(0).at("request"), running.at("id"));
  EXPECT_EQ(memory.at("tiers").at(0).at("name"), "hot");
}

TEST(ServerSteps, HoldEveryTokenOnceUnderTheNameOfItsRequest) {
  FakeWorld world(Options());
  const json::value answer = json::parse(Post(world.port(), kChatPath, kHello).body);
  ASSERT_TRUE(world.WaitForStats(IsIdle));
  const json::value steps = Fetch(world.port(), "/kvist/steps");
  ASSERT_EQ(steps.at("requests").as_array().size(), 1u);
  EXPECT_EQ(steps.at("requests").at(0).at("id"), answer.at("id"));
  int64_t prefill = 0, decode = 0, waits = 0;
  double end_ms = 0;
  for (const json::value& step : steps.at("data").as_array()) {
    EXPECT_GE(step.at("start_ms").to_number<double>(), end_ms);
    end_ms = step.at("start_ms").to_number<double>() + step.at("ms").to_number<double>();
    for (const json::value& part : step.at("requests").as_array()) {
      const json::object& one = part.as_object();
      EXPECT_EQ(one.at("number"), steps.at("requests").at(0).at("number"));
      prefill += one.contains("prefill") ? one.at("prefill").as_int64() : 0;
      decode += one.contains("decode") ? one.at("decode").as_int64() : 0;
      waits += one.contains("waited_ms") ? 1 : 0;
    }
  }
  EXPECT_EQ(prefill, answer.at("usage").at("prompt_tokens").as_int64());
  EXPECT_EQ(decode, 7);
  EXPECT_EQ(waits, 1);
  EXPECT_LE(end_ms, steps.at("now_ms").to_number<double>());

  const json::array& data = steps.at("data").as_array();
  const std::string since = "/kvist/steps?x=1&since=" + std::to_string(data.at(2).at("id").as_int64());
  const json::array rest = Fetch(world.port(), since).at("data").as_array();
  EXPECT_EQ(rest, json::array(data.begin() + 3, data.end()));
  EXPECT_TRUE(Fetch(world.port(), "/kvist/steps?since=18446744073709551615").at("data").as_array().empty());
}

TEST(ServerSteps, WhatIsNoIdIsRefused) {
  FakeWorld world(Options());
  for (const char* bad : {"", "x", "-1", "1.5", "1x", "18446744073709551616", "%31", "+1", " 1"}) {
    const absl::StatusOr<std::optional<StepId>> since = ParseStepsQuery(std::string("since=") + bad);
    EXPECT_EQ(since.status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(ParseStepsQuery("").value(), std::nullopt);
  EXPECT_EQ(ParseStepsQuery("&&since&sinces=3&").value(), std::nullopt);
  EXPECT_EQ(ParseStepsQuery("a=b&since=7").value(), StepId{7});
  const HttpResponse refused = Get(world.port(), "/kvist/steps?since=yesterday");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(ErrorOf(refused).at("param"), "since");
}

TEST(ServerState, OnlyForThoseWithTheKey) {
  FakeWorldOptions options = Options();
  options.server.api_keys = {"secret"};
  FakeWorld world(options);
  for (const char* path : {"/kvist/state", "/kvist/steps"}) {
    EXPECT_EQ(Get(world.port(), path).status, 401);
    EXPECT_EQ(Get(world.port(), path, "Authorization: Bearer secret\r\n").status, 200);
    EXPECT_EQ(Post(world.port(), path, "{}", "Authorization: Bearer secret\r\n").status, 405);
  }
}

}  // namespace
}  // namespace kvist::serve
