#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "engine/engine_testutil.h"
#include "grammar/constraint.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "modelfile/gguf.h"

namespace kvist::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kPerson[] = R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
    "animal": {"enum": ["cat", "dog", "elephant"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99},
    "likes": {"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 1, "maxItems": 3}},
    "required": ["name", "animal", "age", "likes"]})";

std::shared_ptr<const grammar::TokenTable> Table() {
  static const auto table = [] {
    const auto file = GgufFile::Open(kModelPath);
    return std::make_shared<const grammar::TokenTable>(**Tokenizer::FromGguf(**file));
  }();
  return table;
}

std::shared_ptr<const grammar::Constraint> Of(absl::StatusOr<grammar::Grammar> compiled) {
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return std::make_shared<const grammar::Constraint>(*std::move(compiled), Table());
}

std::shared_ptr<const grammar::Constraint> OfSchema(std::string_view schema) {
  grammar::RuleSet rules;
  const auto node = grammar::SchemaNode(boost::json::parse(schema), {}, rules);
  EXPECT_TRUE(node.ok()) << node.status();
  return Of(grammar::Grammar::Compile(rules, rules.Add("root", *node)));
}

GenerationRequest SampledBySchema(Bench& bench, uint64_t seed, std::string_view schema = kPerson) {
  GenerationRequest request = bench.Greedy(kStory, 300);
  request.ignore_eos = false;
  request.sampling.temperature = 1;
  request.sampling.seed = seed;
  request.constraint = OfSchema(schema);
  return request;
}

void ExpectPerson(const Answer& answer) {
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  ASSERT_EQ(answer.finish, FinishReason::kStop) << answer.text;
  boost::system::error_code error;
  const boost::json::value value = boost::json::parse(answer.text, error);
  ASSERT_FALSE(error) << answer.text;
  EXPECT_LE(value.at("age").as_int64(), 99);
  EXPECT_GE(value.at("likes").as_array().size(), 1u);
  EXPECT_EQ(answer.tokens.size(), answer.usage.output_tokens);
}

TEST(EngineConstraint, OutputFollowsTheSchemaAndForcedTokensAreNotSampled) {
  Bench bench({});
  for (uint64_t seed = 0; seed < 8; ++seed) ExpectPerson(bench.Solo(SampledBySchema(bench, seed)));
  GenerationRequest greedy = SampledBySchema(bench, 0);
  greedy.sampling.temperature = 0;
  ExpectPerson(bench.Solo(greedy));
  const EngineStats stats = bench.engine().Stats();
  EXPECT_GT(stats.forced_tokens, 9u * 10);
  // A step for each token that was chosen, not for the others.
  EXPECT_LE(stats.steps, 9 + stats.generated_tokens - stats.forced_tokens);
  bench.ExpectNoLeak();
}

TEST(EngineConstraint, OutputIsTheSameAloneAndInABatch) {
  Bench bench({.frames = 128, .chunk = 16, .tokens_per_step = 24});
  std::vector<Answer> alone;
  for (uint64_t seed = 0; seed < 6; ++seed) alone.push_back(bench.Solo(SampledBySchema(bench, seed)));
  std::vector<RequestId> ids;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    ids.push_back(bench.Submit(SampledBySchema(bench, seed)));
    bench.Submit(bench.Greedy(kOther, 40));
  }
  bench.Finish();
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(bench.Of(ids[i]).tokens, alone[i].tokens);
    ExpectPerson(bench.Of(ids[i]));
  }
}

TEST(EngineConstraint, PreemptionLeavesTheOutputAsItIs) {
  Bench roomy({}), tight({.frames = 12});
  std::vector<RequestId> ids;
  for (uint64_t seed = 0; seed < 6; ++seed) ids.push_back(tight.Submit(SampledBySchema(tight, seed)));
  tight.Finish();
  for (uint64_t seed = 0; seed < 6; ++seed) {
    EXPECT_EQ(tight.Of(ids[seed]).tokens, roomy.Solo(SampledBySchema(roomy, seed)).tokens);
  }
  EXPECT_GT(tight.engine().Stats().preemptions, 0u);
}

TEST(EngineConstraint, ACapsuleGoesOnWhereItsGrammarWas) {
  Bench bench({});
  const Answer whole = bench.Solo(SampledBySchema(bench, 3));
  const RequestId id = bench.Submit(SampledBySchema(bench, 3));
  std::optional<Capsule> capsule;
  while (bench.Of(id).usage.output_tokens < 20) bench.Turn();
  bench.engine().Snapshot(id, [&](std::optional<Capsule> taken) { capsule = std::move(taken); });
  bench.Finish();
  ASSERT_TRUE(capsule.has_value());
  const Answer rest = bench.Solo(*capsule);
  EXPECT_EQ(rest.finish, FinishReason::kStop);
  EXPECT_TRUE(whole.text.ends_with(rest.text));
  // Where it is not, it says so.
  capsule->constraint = Of(grammar::ParseGbnf("root ::= [0-9]+"));
  EXPECT_THAT(std::string(bench.Solo(*capsule).status.message()), HasSubstr("not in the grammar"));
}

TEST(EngineConstraint, EndsAreHonest) {
  Bench bench({});
  GenerationRequest request = SampledBySchema(bench, 1);
  request.max_tokens = 9;
  const Answer cut = bench.Solo(request);
  EXPECT_EQ(cut.finish, FinishReason::kLength);
  EXPECT_EQ(cut.tokens.size(), 9u);
  EXPECT_THAT(cut.text, StartsWith("{\"name\": \""));

  request = SampledBySchema(bench, 1);
  request.constraint = Of(grammar::ParseGbnf("root ::= \"fixed text\""));
  const Answer fixed = bench.Solo(request);  // Nothing to choose: nothing to compute.
  EXPECT_EQ(fixed.text, "fixed text");
  EXPECT_EQ(fixed.finish, FinishReason::kStop);
  request.max_tokens = 1;
  EXPECT_EQ(bench.Solo(request).finish, FinishReason::kLength);

  // Where more may follow and no end is wanted, the output goes on.
  request = SampledBySchema(bench, 1);
  request.constraint = Of(grammar::ParseGbnf("root ::= [a-z ]+"));
  request.ignore_eos = true;
  request.max_tokens = 60;
  const Answer endless = bench.Solo(request);
  EXPECT_EQ(endless.finish, FinishReason::kLength);
  EXPECT_GE(endless.text.size(), 60u);

  grammar::RuleSet rules;
  const grammar::RuleId root = rules.Add(
      "root",
      grammar::Sequence({grammar::Chars({{'a', 'z'}}), grammar::Literal(grammar::ControlBytes(TokenId{0xFFFFFF}))}));
  request = SampledBySchema(bench, 1);
  request.constraint = Of(grammar::Grammar::Compile(rules, root));
  const Answer lost = bench.Solo(request);
  EXPECT_EQ(lost.finish, FinishReason::kError);
  EXPECT_THAT(std::string(lost.status.message()), HasSubstr("cannot go on"));
  bench.ExpectNoLeak();
}

TEST(EngineConstraint, LogprobsAreOfEveryTokenAndOfTheRawLogits) {
  Bench bench({});
  GenerationRequest request = SampledBySchema(bench, 5);
  request.sampling.want_logprobs = true;
  request.sampling.logprobs_count = 2;
  const uint64_t forced = bench.engine().Stats().forced_tokens;
  const Answer answer = bench.Solo(request);
  ExpectPerson(answer);
  EXPECT_EQ(bench.engine().Stats().forced_tokens, forced);
  ASSERT_EQ(answer.events.size(), answer.tokens.size());
  // The first token is "{" by force; the model would have gone on with its story.
  EXPECT_NE(answer.events[0].top[0].token, answer.events[0].token);
}

}  // namespace
}  // namespace kvist::engine
