// Log probabilities of prompts: those that the same tokens had when they were sampled, however the prompt is read.

#include <cmath>

#include <gtest/gtest.h>

#include "engine/engine_testutil.h"

namespace kvist::engine {
namespace {

constexpr uint32_t kTop = 3;

GenerationRequest Scored(std::vector<TokenId> prompt, uint32_t max_tokens) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling = {.temperature = 0, .logprobs_count = kTop, .want_logprobs = true};
  request.ignore_eos = true;
  request.want_prompt_logprobs = true;
  return request;
}

void ExpectSame(const TokenEvent& one, const TokenEvent& other) {
  EXPECT_EQ(one.token, other.token);
  EXPECT_EQ(one.logprob, other.logprob);
  ASSERT_EQ(one.top.size(), other.top.size());
  for (size_t i = 0; i < one.top.size(); ++i) {
    EXPECT_EQ(one.top[i].token, other.top[i].token);
    EXPECT_EQ(one.top[i].logprob, other.top[i].logprob);
  }
}

/// A text that was written by the model, and what it said of each token then.
struct Written {
  std::vector<TokenId> text;
  uint32_t prompt_tokens = 0;
  std::vector<TokenEvent> events;
};

Written Write() {
  Bench bench({});
  GenerationRequest request = bench.Greedy(kStory, 60);
  request.sampling.want_logprobs = true;
  request.sampling.logprobs_count = kTop;
  Written written{.text = request.prompt, .prompt_tokens = static_cast<uint32_t>(request.prompt.size())};
  written.events = bench.Solo(std::move(request)).events;
  for (const TokenEvent& event : written.events) written.text.push_back(event.token);
  return written;
}

void ExpectScores(const Written& written, const Answer& answer) {
  ASSERT_EQ(answer.prompt_logprobs.size(), written.text.size());
  EXPECT_TRUE(std::isnan(answer.prompt_logprobs[0].logprob));
  EXPECT_TRUE(answer.prompt_logprobs[0].top.empty());
  for (size_t i = 0; i < written.text.size(); ++i) {
    EXPECT_EQ(answer.prompt_logprobs[i].token, written.text[i]);
    if (i >= written.prompt_tokens) {
      ExpectSame(answer.prompt_logprobs[i], written.events[i - written.prompt_tokens]);
    } else if (i > 0) {
      EXPECT_LE(answer.prompt_logprobs[i].logprob, 0);
      EXPECT_EQ(answer.prompt_logprobs[i].top.size(), kTop);
    }
  }
}

TEST(EnginePromptLogprobs, AreThoseOfTheTokensWhenTheyWereSampled) {
  const Written written = Write();
  for (const uint32_t chunk : {512u, 17u, 1u}) {
    Bench bench({.chunk = chunk});
    const Answer answer = bench.Solo(Scored(written.text, 2));
    ExpectScores(written, answer);
    EXPECT_EQ(answer.events.size(), 2u) << "the output has its own";
    bench.ExpectNoLeak();
  }
}

TEST(EnginePromptLogprobs, ComeWithoutOutputToo) {
  const Written written = Write();
  Bench bench({.chunk = 32});
  const Answer answer = bench.Solo(Scored(written.text, 0));
  ExpectScores(written, answer);
  EXPECT_EQ(answer.finish, FinishReason::kLength);
  EXPECT_EQ(answer.usage.output_tokens, 0u);
  const Answer one = bench.Solo(Scored({written.text[0]}, 0));
  EXPECT_EQ(one.finish, FinishReason::kLength);
  ASSERT_EQ(one.prompt_logprobs.size(), 1u);
  EXPECT_TRUE(std::isnan(one.prompt_logprobs[0].logprob));
  bench.ExpectNoLeak();
}

TEST(EnginePromptLogprobs, CachedTokensAreComputedAgainAndServeOthersAfterwards) {
  const Written written = Write();
  Bench bench({});
  GenerationRequest plain = Scored(written.text, 2);
  plain.want_prompt_logprobs = false;
  bench.Solo(plain);
  const Answer answer = bench.Solo(Scored(written.text, 2));
  ExpectScores(written, answer);
  EXPECT_EQ(answer.usage.cached_tokens, 0u);
  EXPECT_EQ(bench.Solo(plain).usage.cached_tokens, written.text.size() - 1);
  // At the same time as others that begin alike.
  const RequestId scored = bench.Submit(Scored(written.text, 2)), other = bench.Submit(plain);
  const RequestId again = bench.Submit(Scored(written.text, 2));
  bench.Finish();
  ExpectScores(written, bench.Of(scored));
  ExpectScores(written, bench.Of(again));
  EXPECT_EQ(bench.Of(other).tokens, bench.Of(scored).tokens);
  bench.ExpectNoLeak();
}

TEST(EnginePromptLogprobs, SurvivePreemption) {
  const Written written = Write();
  const uint32_t blocks = kv::BlocksFor(written.text.size());
  Bench bench({.frames = 2 * blocks, .chunk = 8});
  // The others take the frames while the prompt is read, bit by bit.
  std::vector<RequestId> ids;
  for (int i = 0; i < 3; ++i) {
    GenerationRequest long_one = Greedy(20, 100 + static_cast<uint64_t>(i), 40);
    ids.push_back(bench.Submit(std::move(long_one)));
    ids.push_back(bench.Submit(Scored(written.text, 4)));
  }
  bench.Finish();
  EXPECT_GT(bench.engine().Stats().preemptions, 0u);
  for (const size_t i : {1, 3, 5}) ExpectScores(written, bench.Of(ids[i]));
  bench.ExpectNoLeak();
}

}  // namespace
}  // namespace kvist::engine
