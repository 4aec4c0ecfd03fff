// What the engine does with cached keys and values: reuse to the token, one computation of what several requests begin
// with, operations that take parts of a prompt out of the view.

#include <gtest/gtest.h>

#include "base/prng.h"
#include "engine/engine_testutil.h"

namespace kvist::engine {
namespace {

/// A prompt of pseudo-random tokens of the vocabulary.
std::vector<TokenId> RandomPrompt(uint32_t tokens, uint64_t seed) {
  Prng prng(seed);
  std::vector<TokenId> prompt;
  for (uint32_t i = 0; i < tokens; ++i) prompt.push_back(TokenId{static_cast<uint32_t>(10 + prng.Below(800))});
  return prompt;
}

GenerationRequest Greedy(std::vector<TokenId> prompt, uint32_t max_tokens = 12) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  return request;
}

TEST(EngineCache, NextTurnComputesOnlyWhatIsNew) {
  Bench bench({});
  std::vector<TokenId> text = RandomPrompt(301, 1);
  for (int turn = 0; turn < 4; ++turn) {
    const uint64_t before = bench.engine().Stats().computed_tokens;
    const Answer warm = bench.Solo(Greedy(text));
    EXPECT_EQ(warm.tokens, Bench({.reuse = false}).Solo(Greedy(text)).tokens) << turn;
    const uint32_t known = turn == 0 ? 0 : 300 + 42 * turn - 30;  // All of the turn before but its last output token.
    EXPECT_EQ(warm.usage.cached_tokens, known) << turn;
    EXPECT_EQ(bench.engine().Stats().computed_tokens - before, text.size() - known + 11) << turn;
    text.insert(text.end(), warm.tokens.begin(), warm.tokens.end());
    for (TokenId token : RandomPrompt(30, 100 + turn)) text.push_back(token);
  }
  bench.ExpectNoLeak();
}

TEST(EngineCache, ABeginningThatManyAskForAtOnceIsComputedOnce) {
  const std::vector<TokenId> shared = RandomPrompt(400, 2);
  std::vector<std::vector<TokenId>> prompts;
  for (uint64_t i = 0; i < 6; ++i) {
    prompts.push_back(shared);
    for (TokenId token : RandomPrompt(20, 10 + i)) prompts.back().push_back(token);
  }
  Bench bench({.chunk = 64});
  std::vector<RequestId> ids;
  for (const auto& prompt : prompts) ids.push_back(bench.Submit(Greedy(prompt)));
  bench.Finish();
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(bench.Of(ids[i]).tokens, Bench({.reuse = false}).Solo(Greedy(prompts[i])).tokens) << i;
  }
  EXPECT_EQ(bench.engine().Stats().computed_tokens, 400 + 6 * (20 + 11));
  EXPECT_EQ(bench.engine().Stats().waited_for_prefix, 5u);
  bench.ExpectNoLeak();
}

TEST(EngineCache, WhoWaitsForAnotherGoesOnWhenThatOneIsCancelled) {
  const std::vector<TokenId> shared = RandomPrompt(400, 3);
  const Answer expected = Bench({}).Solo(Greedy(shared));
  for (int turns = 0; turns < 12; ++turns) {
    Bench bench({.chunk = 64});
    const RequestId leader = bench.Submit(Greedy(shared)), follower = bench.Submit(Greedy(shared));
    for (int i = 0; i < turns; ++i) bench.Turn();
    bench.engine().Cancel(leader);
    bench.Finish();
    EXPECT_EQ(bench.Of(follower).tokens, expected.tokens) << turns;
    bench.ExpectNoLeak();
  }
}

/// Drops [begin, end) when the first `at` tokens are computed.
kv::CacheOp Drop(uint32_t at, uint32_t begin, uint32_t end) {
  return {.at = at, .begin = begin, .end = end};
}

TEST(EngineCache, DroppingGivesTheSameAnswerColdWarmChunkedBatchedAndPreempted) {
  GenerationRequest request = Greedy(RandomPrompt(240, 4), 30);
  request.ops = {Drop(130, 37, 90), Drop(200, 100, 118)};
  const Answer cold = Bench({.reuse = false}).Solo(request);
  ASSERT_EQ(cold.finish, FinishReason::kLength);
  EXPECT_EQ(cold.usage.dropped_tokens, 53u + 18u);
  EXPECT_NE(cold.tokens, Bench({}).Solo(Greedy(request.prompt, 30)).tokens);
  for (uint32_t chunk : {1u, 7u, 64u, 512u}) {
    Bench bench({.chunk = chunk, .threads = 1 + chunk % 2});
    EXPECT_EQ(bench.Solo(request).tokens, cold.tokens) << "chunk " << chunk;
    const Answer warm = bench.Solo(request);
    EXPECT_EQ(warm.tokens, cold.tokens) << "warm, chunk " << chunk;
    EXPECT_EQ(warm.usage.cached_tokens, 239u);
    bench.ExpectNoLeak();
  }
  Bench bench({.frames = 40});  // Pressure: the others take what was cached.
  std::vector<RequestId> ids;
  for (uint64_t i = 0; i < 6; ++i)
    ids.push_back(bench.Submit(i % 2 == 0 ? request : Greedy(RandomPrompt(200, 50 + i), 60)));
  bench.Finish();
  for (size_t i = 0; i < ids.size(); i += 2) EXPECT_EQ(bench.Of(ids[i]).tokens, cold.tokens) << i;
  bench.ExpectNoLeak();
}

TEST(EngineCache, HistoriesOfTheSameTokensStayApart) {
  Bench bench({});
  const std::vector<TokenId> text = RandomPrompt(200, 5);
  GenerationRequest plain = Greedy(text), early = Greedy(text), late = Greedy(text);
  early.ops = {Drop(100, 20, 60)};
  late.ops = {Drop(160, 20, 60)};
  std::vector<std::vector<TokenId>> expected;
  for (const GenerationRequest& request : {plain, early, late}) {
    expected.push_back(Bench({.reuse = false}).Solo(request).tokens);
  }
  EXPECT_NE(expected[1], expected[2]);  // Tokens 100 to 159 saw the dropped ones or did not.
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(bench.Solo(plain).tokens, expected[0]);
    EXPECT_EQ(bench.Solo(early).tokens, expected[1]);
    EXPECT_EQ(bench.Solo(late).tokens, expected[2]);
  }
  bench.ExpectNoLeak();
}

TEST(EngineCache, DroppingComputesNothingAgain) {
  Bench bench({});
  std::vector<TokenId> text = RandomPrompt(300, 6);
  bench.Solo(Greedy(text, 1));
  for (TokenId token : RandomPrompt(10, 7)) text.push_back(token);
  GenerationRequest next = Greedy(text, 1);
  next.ops = {Drop(300, 64, 192)};
  const uint64_t before = bench.engine().Stats().computed_tokens;
  bench.Solo(next);
  EXPECT_EQ(bench.engine().Stats().computed_tokens - before, 10u);
}

TEST(EngineCache, ATextLongerThanThePoolRunsWhenItsViewFits) {
  Bench bench({.frames = 16});  // 256 tokens.
  GenerationRequest request = Greedy(RandomPrompt(600, 8), 20);
  for (uint32_t at = 200; at < 600; at += 100) request.ops.push_back(Drop(at, at - 150, at - 50));
  EXPECT_EQ(bench.Solo(request).tokens, Bench({}).Solo(request).tokens);
  request.ops.pop_back();
  request.ops.pop_back();
  const Answer refused = bench.Solo(request);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status.message().find("256"), absl::string_view::npos) << refused.status;
  bench.ExpectNoLeak();
}

TEST(EngineCache, DroppingAlmostEverythingAndInsideABlockWorks) {
  const std::vector<TokenId> text = RandomPrompt(100, 9);
  for (const auto& [begin, end] :
       std::vector<std::pair<uint32_t, uint32_t>>{{0, 99}, {0, 16}, {3, 4}, {17, 31}, {90, 99}}) {
    GenerationRequest request = Greedy(text);
    request.ops = {Drop(99, begin, end)};
    Bench bench({});
    const Answer cold = bench.Solo(request);
    EXPECT_EQ(cold.finish, FinishReason::kLength);
    EXPECT_EQ(bench.Solo(request).tokens, cold.tokens) << begin << " to " << end;
    bench.ExpectNoLeak();
  }
}

TEST(EngineCache, WhoIsAloneAndOutOfFramesEndsAndTheNextIsServed) {
  Bench bench({.frames = 32});  // 512 tokens.
  GenerationRequest request = Greedy(RandomPrompt(500, 11), 40);
  request.ops = {Drop(500, 8, 24)};  // Two blocks stay half used: fewer tokens fit than the view would have room for.
  const Answer answer = bench.Solo(request);
  EXPECT_EQ(answer.finish, FinishReason::kLength);
  EXPECT_GT(answer.tokens.size(), 8u);
  EXPECT_EQ(bench.Solo(Greedy(RandomPrompt(40, 12))).finish, FinishReason::kLength);
  bench.ExpectNoLeak();
}

TEST(EngineCache, WhoWasPreemptedAfterDroppingComesBack) {
  Bench bench({.frames = 40});
  GenerationRequest dropping = Greedy(RandomPrompt(400, 13), 350);
  dropping.ops = {Drop(400, 0, 390)};
  const Answer expected = Bench({}).Solo(dropping);
  const RequestId first = bench.Submit(Greedy(RandomPrompt(16, 14), 500)), second = bench.Submit(dropping);
  bench.Finish();
  EXPECT_EQ(bench.Of(first).finish, FinishReason::kLength);
  EXPECT_EQ(bench.Of(second).tokens, expected.tokens);
  EXPECT_GT(bench.engine().Stats().preemptions, 0u);
  bench.ExpectNoLeak();
}

TEST(EngineCache, PromptsOfOneTokenAndOfExactlyThePool) {
  constexpr uint32_t kFrames = 12, kTokens = kFrames * kv::kBlockTokens;
  Bench bench({.frames = kFrames});
  for (const uint32_t tokens : {1u, kTokens - 1, 1u, kTokens - 1}) {
    const GenerationRequest request = Greedy(RandomPrompt(tokens, tokens), 4);
    const Answer answer = bench.Solo(request);
    const Answer roomy = Bench({.reuse = false}).Solo(request);
    EXPECT_EQ(answer.tokens, std::vector(roomy.tokens.begin(), roomy.tokens.begin() + std::min(4u, kTokens - tokens)));
    EXPECT_EQ(answer.finish, FinishReason::kLength);
  }
  const Answer refused = bench.Solo(Greedy(RandomPrompt(kTokens, 1)));
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status.message().find("192"), std::string::npos) << refused.status;
  bench.ExpectNoLeak();
}

TEST(EngineCache, NamespacesThatDifferInOneBitShareNothing) {
  Bench bench({});
  const std::vector<TokenId> prompt = RandomPrompt(100, 3);
  for (uint32_t bit = 0; bit < 64; ++bit) {
    GenerationRequest request = Greedy(prompt, 1);
    request.cache_namespace = uint64_t{1} << bit;
    EXPECT_EQ(bench.Solo(request).usage.cached_tokens, 0u) << bit;
    if (bit % 16 == 0) {
      EXPECT_EQ(bench.Solo(request).usage.cached_tokens, 99u) << bit;
    }
  }
}

TEST(EngineCache, RefusesMalformedOperations) {
  Bench bench({});
  for (const kv::CacheOp& op : {Drop(40, 10, 10), Drop(40, 30, 50), Drop(200, 10, 20)}) {
    GenerationRequest request = Greedy(RandomPrompt(100, 10));
    request.ops = {op};
    EXPECT_EQ(bench.Solo(request).status.code(), absl::StatusCode::kInvalidArgument);
  }
  GenerationRequest unordered = Greedy(RandomPrompt(100, 10));
  unordered.ops = {Drop(50, 1, 2), Drop(40, 3, 4)};
  EXPECT_EQ(bench.Solo(unordered).status.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvist::engine
