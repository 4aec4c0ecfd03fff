// How long the engine keeps what requests wished to be kept: on a clock that moves when told.

#include <gtest/gtest.h>

#include "base/prng.h"
#include "engine/engine_testutil.h"

namespace kvist::engine {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

std::vector<TokenId> RandomPrompt(uint32_t tokens, uint64_t seed) {
  Prng prng(seed);
  std::vector<TokenId> prompt;
  for (uint32_t i = 0; i < tokens; ++i) prompt.push_back(TokenId{static_cast<uint32_t>(10 + prng.Below(800))});
  return prompt;
}

GenerationRequest Greedy(std::vector<TokenId> prompt, std::vector<kv::RetainRange> retain = {},
                         uint32_t max_tokens = 4) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  request.retain = std::move(retain);
  return request;
}

constexpr kv::RetainRange Pin(int64_t for_ns = kv::kForeverNs) {
  return {.retention = kv::Retention::kPinned, .for_ns = for_ns};
}

TEST(EngineRetention, WhatIsPinnedIsFoundUntilItsTimeIsOver) {
  VirtualClock clock;
  Bench bench({.frames = 64, .clock = &clock});
  const std::vector<TokenId> kept = RandomPrompt(200, 1);
  EXPECT_EQ(bench.Solo(Greedy(kept, {Pin(60 * kSecond)})).usage.pinned_blocks, 13u);
  const auto flood = [&](uint64_t seed) {
    for (uint64_t i = 0; i < 4; ++i) bench.Solo(Greedy(RandomPrompt(700, seed + i)));
  };
  flood(100);
  clock.AdvanceTo(TimeNs{59 * kSecond});
  flood(200);
  EXPECT_EQ(bench.Solo(Greedy(kept)).usage.cached_tokens, 199u);
  clock.AdvanceTo(TimeNs{60 * kSecond});
  EXPECT_EQ(bench.engine().NextDeadline(), clock.Now());
  flood(300);
  EXPECT_EQ(bench.Solo(Greedy(kept)).usage.cached_tokens, 0u);
  EXPECT_EQ(bench.engine().NextDeadline(), kTimeNever);
  bench.ExpectNoLeak();
}

TEST(EngineRetention, ForgetsOnTimeWithoutAnythingElseToDo) {
  VirtualClock clock;
  Bench bench({.frames = 64, .clock = &clock});
  bench.Solo(Greedy(RandomPrompt(200, 1), {{.for_ns = 5 * kSecond, .forget = true}}));
  EXPECT_EQ(bench.memory().counts().cached, 13u);
  EXPECT_FALSE(bench.engine().RunOnce());
  clock.AdvanceTo(TimeNs{5 * kSecond});
  EXPECT_TRUE(bench.engine().RunOnce());
  EXPECT_EQ(bench.engine().Stats().kv.frames.free, 64u);
  EXPECT_EQ(bench.engine().Stats().kv.totals.forgotten_blocks, 13u);
}

TEST(EngineRetention, AnIdleEngineOnItsThreadWakesUpToForget) {
  Bench bench({.frames = 64});
  bench.Submit(Greedy(RandomPrompt(200, 1), {{.for_ns = kSecond / 20, .forget = true}}));
  bench.engine().Start();
  for (int i = 0; i < 10000 && bench.engine().Stats().kv.totals.forgotten_blocks == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(bench.engine().Stats().kv.frames.free, 64u);
  bench.engine().Stop(/*drain=*/true);
}

TEST(EngineRetention, CancelledRequestsAreForgottenToo) {
  Bench bench({.frames = 64, .chunk = 32});
  const RequestId id = bench.Submit(Greedy(RandomPrompt(500, 1), {{.for_ns = 0, .forget = true}}));
  while (bench.engine().Stats().computed_tokens < 200) bench.Turn();
  bench.engine().Cancel(id);
  bench.Finish();
  EXPECT_EQ(bench.memory().counts().free, 64u);
}

TEST(EngineRetention, PinsNeverMakeARequestImpossible) {
  for (const double share : {0.5, 1.0}) {
    Bench bench({.frames = 32, .pin_share = share});
    bench.Solo(Greedy(RandomPrompt(490, 1), {Pin()}));
    EXPECT_EQ(bench.engine().Stats().kv.pinned, share == 1.0 ? 31u : 16u);
    const GenerationRequest large = Greedy(RandomPrompt(480, 2), {}, 30);
    const Answer answer = bench.Solo(large);
    EXPECT_EQ(answer.finish, FinishReason::kLength);
    EXPECT_EQ(answer.tokens, Bench({}).Solo(large).tokens);
    EXPECT_GT(bench.engine().Stats().kv.totals.pins_yielded, 0u);
    bench.ExpectNoLeak();
  }
}

TEST(EngineRetention, PinsYieldOnlyToWhoIsAlone) {
  Bench bench({.frames = 48});
  bench.Solo(Greedy(RandomPrompt(380, 1), {Pin()}));  // 24 blocks.
  std::vector<GenerationRequest> requests;
  for (uint64_t i = 0; i < 4; ++i) requests.push_back(Greedy(RandomPrompt(150, 10 + i), {}, 60));
  std::vector<RequestId> ids;
  for (const GenerationRequest& request : requests) ids.push_back(bench.Submit(request));
  bench.Finish();
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(bench.Of(ids[i]).tokens, Bench({}).Solo(requests[i]).tokens) << i;
  }
  EXPECT_EQ(bench.engine().Stats().kv.totals.pins_yielded, 0u);
  EXPECT_EQ(bench.engine().Stats().kv.pinned, 24u);
  bench.ExpectNoLeak();
}

TEST(EngineRetention, WhoIsPreemptedIsKeptButNotPinnedUntilItEnds) {
  Bench bench({.frames = 40});
  std::vector<RequestId> ids;
  std::vector<GenerationRequest> requests;
  for (uint64_t i = 0; i < 3; ++i) requests.push_back(Greedy(RandomPrompt(100, 20 + i), {Pin()}, 160));
  for (const GenerationRequest& request : requests) ids.push_back(bench.Submit(request));
  bench.Finish();
  EXPECT_GT(bench.engine().Stats().preemptions, 0u);
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(bench.Of(ids[i]).tokens, Bench({}).Solo(requests[i]).tokens) << i;
  }
  EXPECT_LE(bench.engine().Stats().kv.pinned, 20u);
  bench.ExpectNoLeak();
}

std::vector<kv::RetainRange> RandomWishes(Prng& prng, uint32_t prompt_tokens) {
  std::vector<kv::RetainRange> wishes(prng.Below(3));
  for (kv::RetainRange& range : wishes) {
    range.begin = static_cast<uint32_t>(prng.Below(prompt_tokens));
    if (prng.Below(2) == 0)
      range.end = range.begin + 1 + static_cast<uint32_t>(prng.Below(prompt_tokens - range.begin));
    range.retention = static_cast<kv::Retention>(prng.Below(kv::kRetentions));
    if (prng.Below(3) > 0) range.for_ns = static_cast<int64_t>(prng.Below(20)) * kSecond;
    range.forget = range.for_ns != kv::kForeverNs && prng.Below(2) == 0;
  }
  return wishes;
}

TEST(EngineRetention, NoAnswerDependsOnWhatOthersWishToBeKept) {
  constexpr size_t kTexts = 6;
  std::vector<GenerationRequest> texts;
  std::vector<std::vector<TokenId>> expected;
  Bench roomy({});
  for (uint64_t i = 0; i < kTexts; ++i) {  // Pairs that begin alike.
    std::vector<TokenId> prompt = RandomPrompt(120, 30 + i / 2);
    for (const TokenId token : RandomPrompt(60, 40 + i)) prompt.push_back(token);
    texts.push_back(Greedy(std::move(prompt), {}, 40));
    if (i % 3 == 0) texts.back().ops = {{.at = 150, .begin = 20, .end = 100}};
    expected.push_back(roomy.Solo(texts.back()).tokens);
  }
  Prng prng(7);
  VirtualClock clock;
  Bench bench({.frames = 44, .chunk = 64, .clock = &clock});
  for (int round = 0; round < 25; ++round) {
    std::vector<std::pair<RequestId, size_t>> ids;
    for (uint64_t count = 1 + prng.Below(3); count > 0; --count) {
      const size_t text = prng.Below(kTexts);
      GenerationRequest request = texts[text];
      request.retain = RandomWishes(prng, static_cast<uint32_t>(request.prompt.size()));
      ids.emplace_back(bench.Submit(std::move(request)), text);
    }
    if (prng.Below(4) == 0) {
      for (uint64_t turns = prng.Below(10); turns > 0; --turns) bench.Turn();
      bench.engine().Cancel(ids.back().first);
      ids.pop_back();
    }
    bench.Finish();
    for (const auto& [id, text] : ids) ASSERT_EQ(bench.Of(id).tokens, expected[text]) << round;
    clock.AdvanceTo(clock.Now() + static_cast<int64_t>(prng.Below(5)) * kSecond);
  }
  EXPECT_GT(bench.engine().Stats().kv.totals.forgotten_blocks, 0u);
  EXPECT_GT(bench.engine().Stats().cached_tokens, 1000u);
  bench.ExpectNoLeak();
}

TEST(EngineRetention, RefusesWhatCannotBeMeant) {
  Bench bench({});
  for (const kv::RetainRange& bad : std::vector<kv::RetainRange>{{.begin = 10, .end = 10},
                                                                 {.begin = 20, .end = 10},
                                                                 {.begin = 0, .end = 101},
                                                                 {.begin = kv::kToTheEnd},
                                                                 {.for_ns = -5},
                                                                 {.forget = true}}) {
    EXPECT_EQ(bench.Solo(Greedy(RandomPrompt(100, 1), {bad})).status.code(), absl::StatusCode::kInvalidArgument);
  }
  std::vector<kv::RetainRange> many;
  for (uint32_t i = 0; i < 1000; ++i) {
    many.push_back({.begin = i % 100, .end = 100, .retention = static_cast<kv::Retention>(i % 4), .for_ns = i});
  }
  EXPECT_EQ(bench.Solo(Greedy(RandomPrompt(100, 1), many)).finish, FinishReason::kLength);
  bench.ExpectNoLeak();
}

}  // namespace
}  // namespace kvist::engine
