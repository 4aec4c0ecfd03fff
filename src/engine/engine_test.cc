// The engine on the real small model: output does not depend on company, chunking, memory pressure or cached prefixes,
// and every frame comes back whatever happens to a request.

#include "engine/engine.h"

#include <gtest/gtest.h>

#include <map>

#include "base/prng.h"
#include "engine/engine_testutil.h"

namespace kvist::engine {
namespace {

class EngineByKvType : public testing::TestWithParam<KvType> {};

TEST_P(EngineByKvType, GreedyOutputIsTheSameAloneBatchedChunkedAndFromCache) {
  const KvType kv_type = GetParam();
  const Answer alone = Bench({.reuse = false, .kv_type = kv_type}).Solo(Bench({}).Greedy(kStory));
  ASSERT_EQ(alone.finish, FinishReason::kLength);
  ASSERT_EQ(alone.tokens.size(), 40u);
  for (uint32_t chunk : {1u, 7u, 64u}) {
    Bench bench({.chunk = chunk, .threads = 1 + chunk % 2, .kv_type = kv_type});
    EXPECT_EQ(bench.Solo(bench.Greedy(kStory)).tokens, alone.tokens) << "chunk " << chunk;
    Answer warm = bench.Solo(bench.Greedy(kStory));
    EXPECT_EQ(warm.tokens, alone.tokens) << "warm, chunk " << chunk;
    EXPECT_GT(warm.usage.cached_tokens, 0u);
    EXPECT_EQ(warm.usage.cached_tokens, bench.Encode(kStory).size() - 1);
    bench.ExpectNoLeak();
  }
  Bench bench({.tokens_per_step = 48, .kv_type = kv_type});
  std::vector<RequestId> ids;
  for (int i = 0; i < 8; ++i) {
    ids.push_back(bench.Submit(bench.Greedy(i % 2 == 0 ? kStory : kOther)));
    bench.Turn();
  }
  bench.Finish();
  for (int i = 0; i < 8; i += 2) EXPECT_EQ(bench.Of(ids[i]).tokens, alone.tokens) << i;
  bench.ExpectNoLeak();
}

INSTANTIATE_TEST_SUITE_P(All, EngineByKvType, testing::Values(KvType::kF16, KvType::kQ8),
                         [](const auto& test) { return std::string(KvTypeName(test.param)); });

TEST(Engine, PreemptionUnderPressureChangesNoOutput) {
  std::vector<std::string> texts;  // Different from the first token on, so that they share no block.
  for (int i = 0; i < 5; ++i) texts.push_back(std::to_string(i) + ". " + std::string(i % 2 == 0 ? kStory : kOther));
  std::vector<Answer> expected;
  Bench roomy({});
  for (const std::string& text : texts) expected.push_back(roomy.Solo(roomy.Greedy(text, 150)));
  Bench bench({.frames = 26});  // Three such requests do not fit at once.
  std::vector<RequestId> ids;
  for (const std::string& text : texts) ids.push_back(bench.Submit(bench.Greedy(text, 150)));
  bench.Finish();
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(bench.Of(ids[i]).tokens, expected[i].tokens) << i;
  EXPECT_GT(bench.engine().Stats().preemptions, 0u);
  bench.ExpectNoLeak();
}

TEST(Engine, CancelAtAnyMomentFreesEverything) {
  const Answer expected = Bench({}).Solo(Bench({}).Greedy(kStory));
  Prng prng(3);
  Bench bench({.frames = 64, .chunk = 8});
  for (int round = 0; round < 60; ++round) {
    RequestId kept = bench.Submit(bench.Greedy(kStory));
    RequestId victim = bench.Submit(bench.Greedy(kOther, 200));
    for (uint64_t turns = prng.Below(12); turns > 0; --turns) bench.Turn();
    bench.engine().Cancel(victim);
    bench.engine().Cancel(victim);  // Twice is no harm.
    bench.Finish();
    ASSERT_EQ(bench.Of(victim).finish, FinishReason::kCancelled);
    ASSERT_EQ(bench.Of(kept).tokens, expected.tokens);
    bench.ExpectNoLeak();
  }
}

TEST(Engine, RefusesWhatCanNeverRunAndServesTheNext) {
  Bench bench({.frames = 4});
  EXPECT_EQ(bench.engine().context_tokens_max(), 64u);
  GenerationRequest huge = bench.Greedy("x");
  huge.prompt.assign(64, TokenId{5});
  Answer refused = bench.Solo(huge);
  EXPECT_EQ(refused.finish, FinishReason::kError);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status.message().find("64"), absl::string_view::npos);
  GenerationRequest unknown = bench.Greedy("x");
  unknown.prompt.push_back(TokenId{1u << 30});
  EXPECT_EQ(bench.Solo(unknown).status.code(), absl::StatusCode::kInvalidArgument);
  GenerationRequest empty;
  EXPECT_EQ(bench.Solo(empty).status.code(), absl::StatusCode::kInvalidArgument);
  GenerationRequest largest = bench.Greedy("x", 1000);
  largest.prompt.assign(60, TokenId{5});
  Answer full = bench.Solo(largest);
  EXPECT_EQ(full.finish, FinishReason::kLength);
  EXPECT_EQ(full.usage.output_tokens, 4u);
  bench.ExpectNoLeak();
}

TEST(Engine, FullQueueIsRefused) {
  Bench bench({.engine = {.waiting_max = 2}});
  std::vector<RequestId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(bench.Submit(bench.Greedy(kStory, 3)));
  bench.Finish();
  int refused = 0;
  for (RequestId id : ids) refused += bench.Of(id).status.code() == absl::StatusCode::kResourceExhausted ? 1 : 0;
  EXPECT_EQ(refused, 3);
  bench.ExpectNoLeak();
}

TEST(Engine, StopStringsEndTheTextBeforeThem) {
  Bench bench({});
  const Answer whole = bench.Solo(bench.Greedy(kStory, 60));
  ASSERT_GT(whole.text.size(), 40u);
  const std::string stop = whole.text.substr(20, 9);  // Crosses token borders.
  GenerationRequest request = bench.Greedy(kStory, 60);
  request.stop = {"never there", stop};
  Answer stopped = bench.Solo(request);
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  EXPECT_EQ(stopped.text, whole.text.substr(0, whole.text.find(stop)));
  GenerationRequest by_token = bench.Greedy(kStory, 60);
  by_token.stop_tokens = {whole.tokens[5]};
  EXPECT_EQ(bench.Solo(by_token).finish, FinishReason::kStop);
}

TEST(Engine, SeededSamplingDoesNotDependOnCompany) {
  Bench bench({});
  auto sampled = [&](uint64_t seed) {
    GenerationRequest request = bench.Greedy(kStory, 30);
    request.sampling.temperature = 1.2f;
    request.sampling.seed = seed;
    return request;
  };
  const Answer first = bench.Solo(sampled(11));
  EXPECT_NE(bench.Solo(sampled(12)).tokens, first.tokens);
  RequestId again = bench.Submit(sampled(11));
  for (int i = 0; i < 5; ++i) bench.Submit(sampled(100 + i));
  bench.Finish();
  EXPECT_EQ(bench.Of(again).tokens, first.tokens);
}

TEST(Engine, LogprobsBiasesAndPenaltiesReachTheSampler) {
  Bench bench({});
  GenerationRequest request = bench.Greedy(kStory, 8);
  request.sampling.want_logprobs = true;
  request.sampling.logprobs_count = 3;
  const Answer plain = bench.Solo(request);
  ASSERT_EQ(plain.events.size(), 8u);
  for (const TokenEvent& event : plain.events) {
    ASSERT_EQ(event.top.size(), 3u);
    EXPECT_EQ(event.top[0].token, event.token);  // Greedy takes the likeliest.
    EXPECT_FLOAT_EQ(event.top[0].logprob, event.logprob);
    EXPECT_GE(event.top[0].logprob, event.top[1].logprob);
    EXPECT_LE(event.logprob, 0);
  }
  request.biases = {{plain.tokens[0], -std::numeric_limits<float>::infinity()}};
  EXPECT_NE(bench.Solo(request).tokens[0], plain.tokens[0]);
  GenerationRequest penalised = bench.Greedy(kStory, 120);
  penalised.sampling.frequency_penalty = 2.0f;
  std::map<uint32_t, int> counts, plain_counts;
  for (TokenId token : bench.Solo(penalised).tokens) ++counts[token.value];
  for (TokenId token : bench.Solo(bench.Greedy(kStory, 120)).tokens) ++plain_counts[token.value];
  EXPECT_GT(counts.size(), plain_counts.size());
}

TEST(Engine, NamespacesShareNothing) {
  Bench bench({});
  GenerationRequest request = bench.Greedy(kStory, 4);
  request.cache_namespace = 1;
  bench.Solo(request);
  EXPECT_GT(bench.Solo(request).usage.cached_tokens, 0u);
  request.cache_namespace = 2;
  EXPECT_EQ(bench.Solo(request).usage.cached_tokens, 0u);
}

TEST(Engine, StopsOnItsThreadWithAndWithoutDraining) {
  for (bool drain : {true, false}) {
    Bench bench({});
    RequestId id = bench.Submit(bench.Greedy(kStory, drain ? 30 : 3000));
    bench.engine().Start();
    while (bench.engine().Stats().generated_tokens == 0) std::this_thread::yield();
    bench.engine().Stop(drain);
    EXPECT_EQ(bench.Of(id).finish, drain ? FinishReason::kLength : FinishReason::kCancelled);
    EXPECT_EQ(bench.Solo(bench.Greedy(kStory)).status.code(), absl::StatusCode::kUnavailable);
    bench.ExpectNoLeak();
  }
}

}  // namespace
}  // namespace kvist::engine
