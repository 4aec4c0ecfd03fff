#include "lab/device_replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "device/device_file.h"
#include "modelfile/gguf.h"
#include "runtime/runtime.h"

namespace kvist::lab {
namespace {

const Tokenizer& SmallTokenizer() {
  static const std::unique_ptr<GgufFile> file = *GgufFile::Open(KVIST_SOURCE_DIR "/models/default-f16.gguf");
  static const std::unique_ptr<const Tokenizer> tokenizer = *Tokenizer::FromGguf(*file);
  return *tokenizer;
}

DeviceReplayOptions Options(std::string_view device = "h100", std::string_view shape = "llama-3.1-8b") {
  const device::Catalog catalog(KVIST_SOURCE_DIR "/devices");
  return {
      .model = *cost::StepModel::Create({.device = *catalog.FindDevice(device), .shape = *cost::FindModelShape(shape)}),
      .tokens_per_step_max = 2048,
      .blocks = 4000};
}

workload::Trace TraceOf(uint32_t count, double distance_s, uint32_t input, uint32_t output) {
  workload::Trace trace;
  for (uint32_t i = 0; i < count; ++i) {
    trace.requests.push_back(
        {.at_s = i * distance_s, .input_tokens = input + i % 13, .output_tokens = output + i % 5, .block_hashes = {}});
  }
  return trace;
}

TEST(DeviceReplay, EveryRequestHasItsTokensInOrder) {
  const workload::Trace trace = TraceOf(40, 0.02, 600, 30);
  const absl::StatusOr<DeviceReplayResult> result = ReplayOnDevice(SmallTokenizer(), trace, Options());
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->records.size(), 40u);
  for (uint32_t i = 0; i < 40; ++i) {
    const LoadRecord& record = result->records[i];
    EXPECT_TRUE(record.answered());
    EXPECT_EQ(record.prompt_tokens, trace.requests[i].input_tokens);
    EXPECT_EQ(record.output_tokens, trace.requests[i].output_tokens);
    EXPECT_EQ(record.text_s.size(), record.output_tokens);
    EXPECT_TRUE(std::ranges::is_sorted(record.text_s));
    EXPECT_GT(record.text_s.front(), record.due_s);
    EXPECT_EQ(record.text_s.back(), record.end_s);
    EXPECT_GE(result->queued_s[i], 0);
    EXPECT_LE(result->queued_s[i], *record.ttft_s());
  }
  EXPECT_EQ(result->totals.steps, result->stats.steps);
  EXPECT_LE(result->totals.cost.ns() * 1e-9, result->duration_s + 1e-6) << "one step at a time";
}

TEST(DeviceReplay, IsTheSameEachTimeAndNotTheSameOnAnotherDevice) {
  const workload::Trace trace = TraceOf(30, 0.05, 900, 20);
  const auto times = [&](const DeviceReplayOptions& options) {
    std::vector<double> all;
    const DeviceReplayResult result = *ReplayOnDevice(SmallTokenizer(), trace, options);
    for (const LoadRecord& record : result.records) {
      all.insert(all.end(), record.text_s.begin(), record.text_s.end());
    }
    return all;
  };
  const std::vector<double> h100 = times(Options());
  EXPECT_EQ(times(Options()), h100);
  const std::vector<double> l4 = times(Options("l4"));
  ASSERT_EQ(l4.size(), h100.size());
  EXPECT_GT(l4.back(), h100.back());
}

TEST(DeviceReplay, ReplicasAreAsFastAsOneOfEachPart) {
  const workload::Trace trace = TraceOf(120, 0.01, 1500, 40);
  DeviceReplayOptions options = Options();
  options.replicas = 4;
  options.routing = Routing::kRoundRobin;
  const DeviceReplayResult together = *ReplayOnDevice(SmallTokenizer(), trace, options);
  ASSERT_EQ(together.busy_s.size(), 4u);
  options.replicas = 1;
  uint64_t steps = 0;
  for (uint32_t part = 0; part < 4; ++part) {
    workload::Trace own;
    for (uint32_t i = part; i < trace.requests.size(); i += 4) own.requests.push_back(trace.requests[i]);
    const DeviceReplayResult alone = *ReplayOnDevice(SmallTokenizer(), own, options);
    steps += alone.totals.steps;
    EXPECT_DOUBLE_EQ(alone.busy_s.front(), together.busy_s[part]);
    for (size_t i = 0; i < own.requests.size(); ++i) {
      EXPECT_EQ(alone.records[i].text_s, together.records[part + 4 * i].text_s) << part << " " << i;
    }
  }
  EXPECT_EQ(together.totals.steps, steps);
}

TEST(DeviceReplay, TheLeastLoadedReplicaSparesThoseBehindLongRequests) {
  workload::Trace trace = TraceOf(240, 0.05, 500, 30);
  for (size_t i = 0; i < trace.requests.size(); i += 4) trace.requests[i].output_tokens = 800;  // All in one turn.
  DeviceReplayOptions options = Options();
  options.replicas = 4;
  const auto mean_e2e = [&](Routing routing) {
    options.routing = routing;
    const DeviceReplayResult result = *ReplayOnDevice(SmallTokenizer(), trace, options);
    return SummariseLoad(result.records, 0, {}, result.duration_s).all.e2e_s.mean;
  };
  EXPECT_LT(mean_e2e(Routing::kLeastLoaded), mean_e2e(Routing::kRoundRobin));
  options.concurrency = 4;
  EXPECT_EQ(ReplayOnDevice(SmallTokenizer(), trace, options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(DeviceReplay, TheRouterSeesWhatIsUnderWayAtTheInstantOfEachArrival) {
  // Bursts and pauses, short and long answers, one that ends at once and one that cannot run.
  workload::Trace trace = TraceOf(300, 0.013, 400, 3);
  for (size_t i = 0; i < trace.requests.size(); ++i) {
    trace.requests[i].at_s += i / 100 * 2.0;
    trace.requests[i].output_tokens = i % 7 == 0 ? 150 : i % 5 == 0 ? 1 : 20;
  }
  DeviceReplayOptions options = Options();
  options.plan_ahead = false;  // So that a request's end is seen when it is.
  options.replicas = 5;
  options.blocks = 200;
  trace.requests[30].input_tokens = 200 * 16;
  const DeviceReplayResult result = *ReplayOnDevice(SmallTokenizer(), trace, options);
  EXPECT_FALSE(result.records[30].answered());
  for (size_t i = 0; i < trace.requests.size(); ++i) {
    std::vector<uint32_t> under_way(options.replicas, 0);
    for (size_t j = 0; j < i; ++j) under_way[result.replica[j]] += result.records[j].end_s >= result.records[i].due_s;
    EXPECT_EQ(result.replica[i], std::ranges::min_element(under_way) - under_way.begin()) << i;
  }
}

TEST(DeviceReplay, CopiesAreCrowdsOfTheirOwnInTheSameSpan) {
  workload::Trace trace = TraceOf(10, 1, 100, 5);
  trace.block_tokens = 16;
  for (workload::TraceRequest& request : trace.requests) request.block_hashes = {7};
  const workload::Trace copies = CopiesOf(trace, 3);
  ASSERT_EQ(copies.requests.size(), 30u);
  EXPECT_TRUE(std::ranges::is_sorted(copies.requests, {}, &workload::TraceRequest::at_s));
  EXPECT_LE(copies.requests.back().at_s, trace.requests.back().at_s);
  std::map<uint64_t, int> crowds;
  for (const workload::TraceRequest& request : copies.requests) ++crowds[request.block_hashes.front()];
  EXPECT_EQ(crowds.size(), 3u);
  for (const auto& [hash, count] : crowds) EXPECT_EQ(count, 10) << hash;
}

TEST(DeviceReplay, AFasterDeviceAnswersSoonerAndALoadedOneQueues) {
  const workload::Trace trace = TraceOf(200, 0.01, 1500, 60);
  const auto figures = [&](std::string_view device) {
    const DeviceReplayResult result = *ReplayOnDevice(SmallTokenizer(), trace, Options(device));
    return std::pair(SummariseLoad(result.records, 0, {}, result.duration_s).all, DistributionOf(result.queued_s).mean);
  };
  const auto [h200, h200_queued] = figures("h200");
  const auto [l4, l4_queued] = figures("l4");
  EXPECT_LT(h200.e2e_s.mean, 0.3 * l4.e2e_s.mean);
  EXPECT_LT(h200_queued, l4_queued);
}

TEST(DeviceReplay, AClosedLoopKeepsItsNumberOfRequestsUnderWay) {
  DeviceReplayOptions options = Options();
  options.concurrency = 4;
  const DeviceReplayResult result = *ReplayOnDevice(SmallTokenizer(), TraceOf(40, 1000, 300, 20), options);
  const LoadSummary summary = SummariseLoad(result.records, 0, {}, result.duration_s);
  EXPECT_EQ(summary.running_max, 4u);
  EXPECT_EQ(summary.all.answered(), 40u);
  EXPECT_LT(result.duration_s, 60) << "the trace's times are not waited for";
}

TEST(DeviceReplay, PlanningBehindWaitsForEachStepAndSeesArrivalsSooner) {
  const workload::Trace trace = TraceOf(60, 0.011, 700, 40);
  DeviceReplayOptions options = Options();
  const double ahead = DistributionOf(ReplayOnDevice(SmallTokenizer(), trace, options)->queued_s).mean;
  options.plan_ahead = false;
  const DeviceReplayResult behind = *ReplayOnDevice(SmallTokenizer(), trace, options);
  EXPECT_EQ(SummariseLoad(behind.records, 0, {}, behind.duration_s).all.answered(), 60u);
  EXPECT_NE(DistributionOf(behind.queued_s).mean, ahead);
}

TEST(DeviceReplay, SharedBeginningsAreComputedOnce) {
  workload::Trace trace = TraceOf(20, 0.5, 2000, 10);
  trace.block_tokens = 512;
  for (workload::TraceRequest& request : trace.requests) request.block_hashes = {1, 2, 3};
  const DeviceReplayResult result = *ReplayOnDevice(SmallTokenizer(), trace, Options());
  EXPECT_EQ(result.stats.cached_tokens, 19u * 3 * 512);
  DeviceReplayOptions none = Options();
  none.reuse = false;
  EXPECT_EQ(ReplayOnDevice(SmallTokenizer(), trace, none)->stats.cached_tokens, 0u);
}

TEST(DeviceReplay, MemoryOfTheHostBringsBackWhatTheDeviceHadNoRoomFor) {
  // Twelve texts of 6000 tokens, each asked for three times; the device has room for four of them.
  workload::Trace trace = TraceOf(36, 2, 6000, 10);
  trace.block_tokens = 512;
  for (size_t i = 0; i < trace.requests.size(); ++i) {
    for (uint64_t k = 0; k < 11; ++k) trace.requests[i].block_hashes.push_back(100 * (i % 12) + k);
  }
  DeviceReplayOptions options = Options();
  options.blocks = 1600;
  const auto run = [&] { return *ReplayOnDevice(SmallTokenizer(), trace, options); };
  const auto mean_ttft = [](const DeviceReplayResult& result) {
    return SummariseLoad(result.records, 0, {}, result.duration_s).all.ttft_s.mean;
  };
  const DeviceReplayResult without = run();
  EXPECT_EQ(without.stats.cached_tokens, 0u);
  EXPECT_EQ(without.host.restores, 0u);

  const device::Catalog catalog(KVIST_SOURCE_DIR "/devices");
  options.host = {.blocks_max = 100'000,
                  .block_bytes = options.model.kv_bytes_per_token() * 16,
                  .link = *catalog.FindLink("pcie5")};
  const DeviceReplayResult with = run();
  // Some blocks are given up before there was time to move them.
  EXPECT_EQ(with.host.restores, 24u);
  EXPECT_GT(with.host.restored_blocks, 0.85 * 24 * 11 * 32);
  EXPECT_GE(with.stats.cached_tokens, with.host.restored_blocks * 16);
  EXPECT_EQ(with.host.to_device.bytes, static_cast<double>(with.host.restored_blocks) * options.host->block_bytes);
  EXPECT_LT(mean_ttft(with), 0.6 * mean_ttft(without));
  // One at a time: a restore takes what its bytes take, and the engine looks every fifth of a millisecond.
  EXPECT_EQ(with.host.to_device.waited_ns, 0);
  EXPECT_GE(with.host.restore_ns, with.host.to_device.busy_ns);
  EXPECT_LE(with.host.restore_ns, with.host.to_device.busy_ns + 24 * 200'000);

  // All at once: more than there is room for.
  for (size_t i = 12; i < trace.requests.size(); ++i) trace.requests[i].at_s = i < 24 ? 100 : 200;
  const DeviceReplayResult crowded = run();
  EXPECT_EQ(SummariseLoad(crowded.records, 0, {}, crowded.duration_s).all.answered(), 36u);

  // Over a slow link they are sooner computed.
  options.host->link.bandwidth = 5e8;
  const DeviceReplayResult slow = run();
  EXPECT_GT(slow.host.computed_instead, 0u);
  EXPECT_LT(slow.host.restores, 12u);
  options.real_time = true;
  EXPECT_TRUE(absl::IsInvalidArgument(ReplayOnDevice(SmallTokenizer(), trace, options).status()));
}

TEST(DeviceReplay, RealTimeTakesAsLongAsItSays) {
  DeviceReplayOptions options = Options();
  options.real_time = true;
  const DeviceReplayResult result = *ReplayOnDevice(SmallTokenizer(), TraceOf(6, 0.03, 200, 10), options);
  const DeviceReplayResult virtual_result = *ReplayOnDevice(SmallTokenizer(), TraceOf(6, 0.03, 200, 10), Options());
  EXPECT_EQ(SummariseLoad(result.records, 0, {}, result.duration_s).all.answered(), 6u);
  EXPECT_GE(result.duration_s, 0.9 * virtual_result.duration_s);
}

TEST(DeviceReplay, AServedDeviceAnswersInWordsAndEndsByItself) {
  runtime::RuntimeOptions options{.model_path = KVIST_SOURCE_DIR "/models/default-f16.gguf"};
  options.emulation = {.model = Options().model, .blocks = 500, .output_tokens_mean = 20};
  const std::unique_ptr<runtime::Runtime> served = *runtime::Start(options);
  EXPECT_EQ(served->model_id, "llama-3.1-8b");
  EXPECT_EQ(served->executor->Name(), "emulated-h100");
  EXPECT_EQ(served->kv_bytes, 500u * 16 * 131072);
  served->engine->Start();
  std::mutex mutex;
  std::string text;
  uint32_t ended = 0;
  for (uint32_t i = 0; i < 5; ++i) {
    engine::GenerationRequest request;
    request.prompt = served->tokenizer->Encode("Once " + std::to_string(i), {.add_special = false});
    request.max_tokens = 2000;
    served->engine->Submit(std::move(request), [&](engine::GenerationEvent&& event) {
      std::lock_guard lock(mutex);
      text += event.text;
      ended += event.finish == engine::FinishReason::kStop ? 1 : 0;
    });
  }
  served->engine->Stop(/*drain=*/true);
  EXPECT_EQ(ended, 5u) << "none has 2000 tokens";
  EXPECT_NE(text.find(" "), text.npos);
  EXPECT_NE(text.find_first_of("abcdefghijklmnopqrstuvwxyz"), text.npos);
}

TEST(DeviceReplay, WhatCannotRunIsTold) {
  DeviceReplayOptions options = Options();
  options.policy = "roulette";
  EXPECT_TRUE(absl::IsInvalidArgument(ReplayOnDevice(SmallTokenizer(), TraceOf(1, 1, 1, 1), options).status()));
  options = Options();
  options.blocks = 1;
  EXPECT_TRUE(absl::IsInvalidArgument(ReplayOnDevice(SmallTokenizer(), TraceOf(1, 1, 1, 1), options).status()));
  options.blocks = 4;
  const DeviceReplayResult result = *ReplayOnDevice(SmallTokenizer(), TraceOf(1, 1, 500, 1), options);
  EXPECT_FALSE(result.records[0].answered());
  EXPECT_NE(result.records[0].why, "");
}

}  // namespace
}  // namespace kvist::lab
