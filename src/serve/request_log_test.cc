#include "serve/request_log.h"

#include <gtest/gtest.h>

#include "base/status.h"

namespace kvist::serve {
namespace {

constexpr Viewer kAll{.all = true};

namespace json = boost::json;

constexpr int64_t kMs = 1'000'000;

LoggedRequest Entry(const std::string& id, uint64_t engine_id) {
  return {.id = id,
          .kind = "chat",
          .created_unix_s = 1700000000,
          .received_at = TimeNs{10 * kMs},
          .submitted_at = TimeNs{12 * kMs},
          .finished_at = TimeNs{100 * kMs},
          .reason = engine::FinishReason::kStop,
          .engine_ids = {RequestId{engine_id}}};
}

std::shared_ptr<engine::RequestTrace> Trace() {
  auto trace = std::make_shared<engine::RequestTrace>();
  trace->arrived_at = TimeNs{12 * kMs};
  trace->began_at = TimeNs{25 * kMs};
  trace->first_token_at = TimeNs{45 * kMs};
  trace->finished_at = TimeNs{95 * kMs};
  trace->leader = RequestId{1};
  trace->leader_wait_ns = 3 * kMs;
  trace->preempted_ns = 7 * kMs;
  trace->preempted_prefill_ns = 5 * kMs;
  trace->steps = 4;
  trace->batch_requests = 10;
  trace->reused = {{.tokens = 32, .node = 5, .computed_by = RequestId{1}, .computed_at = TimeNs{5 * kMs}},
                   {.tokens = 7, .copied = true, .computed_by = RequestId{99}}};
  return trace;
}

TEST(RequestLog, PhasesAreThoseOfTheTraceAndAddUp) {
  RequestLog log;
  log.Name(RequestId{1}, "chatcmpl-a", {});
  log.Name(RequestId{2}, "chatcmpl-b", {});
  log.Add(Entry("chatcmpl-a", 1));
  LoggedRequest entry = Entry("chatcmpl-b", 2);
  entry.traces = {Trace()};
  log.Add(entry);
  const json::value body = json::parse(log.Body("chatcmpl-b", kAll).value());
  double sum = 0;
  for (const auto& [phase, ms] : std::vector<std::pair<const char*, double>>{{"prepare", 2},
                                                                             {"queue", 10},
                                                                             {"leader", 3},
                                                                             {"prefill", 15},
                                                                             {"decode", 48},
                                                                             {"preempted", 7},
                                                                             {"answer", 5}}) {
    EXPECT_DOUBLE_EQ(body.at("phases_ms").at(phase).to_number<double>(), ms) << phase;
    sum += ms;
  }
  EXPECT_DOUBLE_EQ(body.at("total_ms").to_number<double>(), sum);
  const json::value& choice = body.at("choices").at(0);
  EXPECT_EQ(choice.at("tokens").at("reused").as_int64(), 32);
  EXPECT_EQ(choice.at("tokens").at("copied").as_int64(), 7);
  EXPECT_EQ(choice.at("reused_from").at(0).at("computed_by").as_string(), "chatcmpl-a");
  EXPECT_DOUBLE_EQ(choice.at("reused_from").at(0).at("ms_before").to_number<double>(), 20);
  EXPECT_TRUE(choice.at("reused_from").at(1).at("computed_by").is_null());  // Nobody knows any more.
  EXPECT_TRUE(choice.at("reused_from").at(1).at("ms_before").is_null());
  EXPECT_EQ(choice.at("leader").at("id").as_string(), "chatcmpl-a");
  EXPECT_DOUBLE_EQ(choice.at("steps").at("requests_mean").to_number<double>(), 2.5);
}

TEST(RequestLog, WhatCameBackLongAgoIsToldFromWhatWasReadForTheRequest) {
  RequestLog log;
  LoggedRequest entry = Entry("chatcmpl-b", 2);
  std::shared_ptr<engine::RequestTrace> trace = Trace();
  trace->reused = {{.tokens = 32, .source = kv::BlockSource::kDrive, .computed_at = TimeNs{5 * kMs}},
                   {.tokens = 16, .source = kv::BlockSource::kColdMemory, .computed_at = TimeNs{24 * kMs}}};
  entry.traces = {trace};
  log.Add(entry);
  const json::value body = json::parse(log.Body("chatcmpl-b", kAll).value());
  const json::value &before = body.at("choices").at(0).at("reused_from").at(0),
                    &now = body.at("choices").at(0).at("reused_from").at(1);
  EXPECT_EQ(before.at("from").as_string(), "drive");
  EXPECT_TRUE(before.at("in_memory").as_bool());
  EXPECT_DOUBLE_EQ(before.at("ms_before").to_number<double>(), 20);
  EXPECT_EQ(now.at("from").as_string(), "cold_memory");
  EXPECT_FALSE(now.at("in_memory").as_bool());
  EXPECT_DOUBLE_EQ(now.at("ms_before").to_number<double>(), 1);
}

TEST(RequestLog, WhatDidNotHappenIsNull) {
  RequestLog log;
  LoggedRequest entry = Entry("cmpl-x", 1);
  entry.traces = {std::make_shared<engine::RequestTrace>()};
  entry.http_status = 503;
  log.Add(entry);
  const json::value body = json::parse(log.Body("cmpl-x", kAll).value());
  for (const char* phase : {"queue", "prefill", "decode", "answer"}) {
    EXPECT_TRUE(body.at("phases_ms").at(phase).is_null()) << phase;
  }
  EXPECT_TRUE(body.at("choices").at(0).at("leader").is_null());
  EXPECT_EQ(body.at("error_status").as_int64(), 503);
}

TEST(RequestLog, KeepsTheLastOnesAndTheirNames) {
  RequestLog log(3);
  for (uint64_t i = 1; i <= 10; ++i) {
    log.Name(RequestId{i}, Cat("cmpl-", i), {});
    log.Add(Entry(Cat("cmpl-", i), i));
  }
  const json::value list = json::parse(log.ListBody(kAll));
  ASSERT_EQ(list.at("data").as_array().size(), 3u);
  EXPECT_EQ(list.at("data").at(0).at("id").as_string(), "cmpl-10");
  EXPECT_FALSE(log.Body("cmpl-7", kAll).has_value());
  auto trace = Trace();
  trace->leader = RequestId{7};
  log.AddTrace("cmpl-9", 0, trace);
  log.AddTrace("cmpl-9", 1, trace);  // There is one choice.
  log.AddTrace("cmpl-7", 0, trace);
  const json::value body = json::parse(log.Body("cmpl-9", kAll).value());
  ASSERT_EQ(body.at("choices").as_array().size(), 1u);
  EXPECT_TRUE(body.at("choices").at(0).at("leader").at("id").is_null());  // It is forgotten.
}

TEST(RequestLog, RunningRequestsAreFoundByTheirFirstChoice) {
  RequestLog log;
  log.Name(RequestId{4}, "cmpl-1", {});
  log.Name(RequestId{5}, "cmpl-1", {});
  EXPECT_EQ(log.FindRunning("cmpl-1", kAll), RequestId{4});
  EXPECT_FALSE(log.FindRunning("cmpl-2", kAll).has_value());
  log.Add({.id = "cmpl-1", .engine_ids = {RequestId{4}, RequestId{5}}});
  EXPECT_FALSE(log.FindRunning("cmpl-1", kAll).has_value());
}

}  // namespace
}  // namespace kvist::serve
