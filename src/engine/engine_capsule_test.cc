// Capsules: the state of a request at a boundary, from which it goes on with the same bits: in place, elsewhere, many
// times, or from an earlier boundary.

#include <gtest/gtest.h>

#include "base/prng.h"
#include "engine/engine_testutil.h"

namespace kvist::engine {
namespace {

/// A sampled request whose next token depends on all of its state: seed and position, penalties, stop strings.
GenerationRequest Sampled(Bench& bench, uint64_t seed, uint32_t max_tokens = 24) {
  GenerationRequest request = bench.Greedy(kStory, max_tokens);
  request.sampling.temperature = 1.2f;
  request.sampling.presence_penalty = 1.5f;
  request.sampling.repetition_penalty = 1.2f;
  request.sampling.seed = seed;
  request.sampling.want_logprobs = true;
  request.stop = {"never in this text", "\x01"};
  return request;
}

/// The state after so many tokens of output, taken while the request runs.
std::vector<Capsule> SnapshotsOf(Bench& bench, GenerationRequest request, Answer* whole) {
  std::vector<Capsule> capsules;
  const RequestId id = bench.Submit(std::move(request));
  while (bench.Of(id).finish == FinishReason::kNone) {
    bench.engine().Snapshot(id, [&](std::optional<Capsule> taken) {
      if (taken && (capsules.empty() || taken->prompt.size() > capsules.back().prompt.size())) {
        capsules.push_back(*std::move(taken));
      }
    });
    bench.Turn();
  }
  *whole = bench.Of(id);
  return capsules;
}

void ExpectGoesOn(const Answer& rest, const Answer& whole, const Capsule& from) {
  const size_t before = from.prompt_output_tokens;
  ASSERT_EQ(rest.tokens.size() + before, whole.tokens.size());
  EXPECT_TRUE(std::ranges::equal(rest.tokens, std::span(whole.tokens).subspan(before)));
  EXPECT_EQ(rest.text, whole.text.substr(whole.text.size() - rest.text.size()));
  for (size_t i = 0; i < rest.events.size(); ++i) {
    const TokenEvent& was = whole.events[whole.events.size() - rest.events.size() + i];
    EXPECT_EQ(std::bit_cast<uint32_t>(rest.events[i].logprob), std::bit_cast<uint32_t>(was.logprob)) << i;
  }
}

TEST(EngineCapsule, GoesOnWithTheSameBitsFromEveryBoundary) {
  Bench bench({});
  Answer whole;
  const std::vector<Capsule> capsules = SnapshotsOf(bench, Sampled(bench, 7), &whole);
  ASSERT_GE(capsules.size(), 20u);
  Bench elsewhere({.reuse = false, .kv_type = KvType::kF16});
  for (const Capsule& capsule : capsules) {
    SCOPED_TRACE(capsule.prompt_output_tokens);
    const Answer here = bench.Solo(capsule);
    ExpectGoesOn(here, whole, capsule);
    EXPECT_GE(here.usage.cached_tokens + 1, capsule.prompt.size()) << "the state is in memory, up to the last token";
    ExpectGoesOn(elsewhere.Solo(capsule), whole, capsule);
  }
  bench.ExpectNoLeak();
}

TEST(EngineCapsule, TokensAloneAreNotTheWholeState) {
  Bench bench({});
  GenerationRequest request = Sampled(bench, 11, 32);
  request.sampling.temperature = 0;
  request.sampling.presence_penalty = request.sampling.frequency_penalty = 2.0f;
  Answer whole;
  const std::vector<Capsule> capsules = SnapshotsOf(bench, request, &whole);
  uint32_t different = 0;
  for (const Capsule& capsule : capsules) {
    GenerationRequest only_tokens = capsule;
    only_tokens.prompt_output_tokens = 0;  // What a prefix cache keeps.
    const Answer rest = bench.Solo(only_tokens);
    different += !std::ranges::equal(rest.tokens, std::span(whole.tokens).subspan(capsule.prompt_output_tokens));
  }
  EXPECT_GT(different, 0u) << "output penalties are part of the state";
}

TEST(EngineCapsule, TheLastEventBringsOneWhenAskedFor) {
  Bench bench({});
  std::shared_ptr<const GenerationRequest> capsule;
  GenerationRequest request = Sampled(bench, 3, 10);
  request.want_capsule = true;
  bench.engine().Submit(request, [&](GenerationEvent&& event) {
    EXPECT_EQ(event.capsule != nullptr, event.finish != FinishReason::kNone);
    capsule = event.capsule;
  });
  bench.Finish();
  ASSERT_NE(capsule, nullptr);
  EXPECT_EQ(capsule->prompt_output_tokens, 10u);
  const Answer whole = bench.Solo(Sampled(bench, 3, 30));
  GenerationRequest more = *capsule;
  EXPECT_EQ(more.max_tokens, 0u);
  more.max_tokens = 20;
  ExpectGoesOn(bench.Solo(more), whole, *capsule);
}

TEST(EngineCapsule, RollsBackToAnEarlierBoundary) {
  Bench bench({});
  Answer whole;
  const std::vector<Capsule> capsules = SnapshotsOf(bench, Sampled(bench, 5), &whole);
  const Capsule last = capsules.back();
  for (const uint32_t tokens : {0u, 1u, 9u, 17u}) {
    SCOPED_TRACE(tokens);
    Capsule back = RolledBack(last, tokens);
    back.max_tokens = 24 - tokens;
    ExpectGoesOn(bench.Solo(back), whole, back);
    back.sampling.seed = 6;  // Another try from there.
    const Answer retry = bench.Solo(back);
    EXPECT_NE(retry.tokens, std::vector(whole.tokens.begin() + tokens, whole.tokens.end()));
    EXPECT_EQ(retry.tokens, Bench({.reuse = false}).Solo(back).tokens);
  }
}

TEST(EngineCapsule, OperationsAreInIt) {
  Bench bench({});
  GenerationRequest request = Sampled(bench, 9);
  request.prompt = bench.Encode(std::string(kStory) + " " + std::string(kOther) + " " + std::string(kStory));
  request.ops = {{.at = 30, .begin = 5, .end = 25},
                 {.at = static_cast<uint32_t>(request.prompt.size()), .begin = 26, .end = 28}};
  Answer whole;
  const std::vector<Capsule> capsules = SnapshotsOf(bench, request, &whole);
  Bench elsewhere({.reuse = false});
  for (const Capsule& capsule : capsules) {
    ExpectGoesOn(bench.Solo(capsule), whole, capsule);
    ExpectGoesOn(elsewhere.Solo(capsule), whole, capsule);
  }
}

TEST(EngineCapsule, SurvivesTheLossOfItsMemory) {
  Bench bench({.frames = 24});
  Answer whole;
  const std::vector<Capsule> capsules = SnapshotsOf(bench, Sampled(bench, 13), &whole);
  GenerationRequest other = bench.Greedy(kOther, 1);
  while (other.prompt.size() < 23 * kv::kBlockTokens) other.prompt.push_back(other.prompt[other.prompt.size() - 20]);
  bench.Solo(other);
  const Answer rest = bench.Solo(capsules[10]);
  EXPECT_LE(rest.usage.cached_tokens, 1 * kv::kBlockTokens);
  ExpectGoesOn(rest, whole, capsules[10]);
}

TEST(EngineCapsule, AThousandForksShareItsPages) {
  Bench bench({.frames = 1024});
  Answer whole;
  GenerationRequest request = bench.Greedy(kStory, 40);
  const std::vector<Capsule> capsules = SnapshotsOf(bench, request, &whole);
  Capsule fork = capsules[20];
  fork.max_tokens = 2;
  std::vector<RequestId> ids;
  const uint64_t computed = bench.engine().Stats().computed_tokens;
  for (uint32_t i = 0; i < 1000; ++i) {
    fork.sampling.temperature = 2.0f;
    fork.sampling.seed = i;
    ids.push_back(bench.Submit(fork));
  }
  bench.Finish();
  std::map<std::vector<TokenId>, uint32_t> answers;
  for (const RequestId id : ids) ++answers[bench.Of(id).tokens];
  EXPECT_GT(answers.size(), 1u);
  EXPECT_EQ(bench.engine().Stats().computed_tokens - computed, 2000u) << "one for the first token, one for the second";
  for (const uint32_t i : {0u, 500u, 999u}) {
    fork.sampling.seed = i;
    EXPECT_EQ(bench.Of(ids[i]).tokens, Bench({.reuse = false}).Solo(fork).tokens) << i;
  }
  bench.ExpectNoLeak();
}

TEST(EngineCapsule, ChoicesOfOnePromptForkAtItsEnd) {
  Bench bench({.chunk = 16});
  std::vector<RequestId> ids;
  for (uint64_t seed = 0; seed < 8; ++seed) ids.push_back(bench.Submit(Sampled(bench, seed, 6)));
  bench.Finish();
  const auto prompt = static_cast<uint32_t>(Sampled(bench, 0).prompt.size());
  ASSERT_NE((prompt - 1) % kv::kBlockTokens, 0u) << "the fork is inside a block";
  // The first reads the prompt; the others compute its last token, and each its own output.
  EXPECT_EQ(bench.engine().Stats().computed_tokens, prompt + 7 + 8 * 5);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    EXPECT_EQ(bench.Of(ids[seed]).tokens, Bench({.reuse = false}).Solo(Sampled(bench, seed, 6)).tokens) << seed;
  }
  bench.ExpectNoLeak();
}

TEST(EngineCapsule, ImpossibleStatesAreRefused) {
  Bench bench({});
  GenerationRequest request = bench.Greedy(kStory, 4);
  request.prompt_output_tokens = static_cast<uint32_t>(request.prompt.size());
  EXPECT_EQ(bench.Solo(request).status.code(), absl::StatusCode::kInvalidArgument);
  bool asked = false;
  bench.engine().Snapshot(RequestId{12345}, [&](std::optional<Capsule> capsule) {
    asked = true;
    EXPECT_FALSE(capsule.has_value());
  });
  bench.Turn();
  EXPECT_TRUE(asked);
}

}  // namespace
}  // namespace kvist::engine
