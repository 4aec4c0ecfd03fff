#include "lab/load_plan.h"

#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"

namespace kvist::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<PlannedConversation> All(const LoadPlanOptions& options) {
  absl::StatusOr<LoadPlan> plan = LoadPlan::Make(options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  std::vector<PlannedConversation> out;
  while (plan.ok()) {
    std::optional<PlannedConversation> next = plan->Next();
    if (!next) break;
    out.push_back(*std::move(next));
  }
  return out;
}

/// Mean and variance of gaps, in units of the mean gap.
std::pair<double, double> Moments(double shape) {
  Prng prng(7);
  constexpr int kDraws = 200'000;
  double sum = 0, squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double gap = DrawGap(prng, 4, shape) * 4;
    EXPECT_GE(gap, 0);
    sum += gap;
    squares += gap * gap;
  }
  const double mean = sum / kDraws;
  return {mean, squares / kDraws - mean * mean};
}

TEST(LoadPlanTest, GapsHaveTheRateAndTheBurstiness) {
  for (const double shape : {0.25, 1.0, 4.0}) {
    const auto [mean, variance] = Moments(shape);
    EXPECT_NEAR(mean, 1, 0.02) << shape;
    EXPECT_NEAR(variance, 1 / shape, 0.05 / shape) << shape;
  }
}

TEST(LoadPlanTest, EqualOptionsGiveEqualPlansAndSeedsMatter) {
  LoadPlanOptions options{.rate = 5, .input_tokens = 20, .conversations = 50};
  const auto one = All(options), two = All(options);
  options.seed = 2;
  const auto other = All(options);
  ASSERT_EQ(one.size(), 50u);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].at_s, two[i].at_s);
    EXPECT_EQ(one[i].turns[0].text, two[i].turns[0].text);
    EXPECT_NE(one[i].turns[0].text, other[i].turns[0].text);
    if (i > 0) {
      EXPECT_GE(*one[i].at_s, *one[i - 1].at_s);
    }
  }
}

TEST(LoadPlanTest, TenantsArriveAtTheirOwnRates) {
  const auto all = All({.tenants = {{.name = "a", .rate = 1}, {.name = "b", .rate = 9}},
                        .input_tokens = 1,
                        .conversations = 100'000,
                        .seconds = 500});
  double a = 0;
  for (const PlannedConversation& conversation : all) {
    EXPECT_LT(*conversation.at_s, 500);
    if (conversation.tenant == 0) ++a;
  }
  EXPECT_NEAR(a, 500, 100);
  EXPECT_NEAR(static_cast<double>(all.size()), 5000, 300);
}

TEST(LoadPlanTest, RatesThatChange) {
  const auto rates = ParseRates("# a quiet minute, then a rush\n0,2\n 60 , 20 # now\n\n120,0\n");
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_EQ(*rates, (std::vector<RateStep>{{0, 2}, {60, 20}, {120, 0}}));
  LoadPlanOptions options;
  options.rates = *rates;
  options.tenants = {{.name = "a"}, {.name = "b"}};
  options.conversations = 100'000;
  auto plan = LoadPlan::Make(options);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->open_loop());
  double quiet = 0, rush = 0, before = 0;
  while (const auto conversation = plan->Next()) {
    ASSERT_GE(*conversation->at_s, before);
    before = *conversation->at_s;
    ASSERT_LT(before, 120) << "a rate of 0 ends it";
    ++(before < 60 ? quiet : rush);
  }
  EXPECT_NEAR(quiet, 120, 40);
  EXPECT_NEAR(rush, 1200, 130);

  options.rate = 1;
  EXPECT_FALSE(LoadPlan::Make(options).ok());
  for (const char* bad : {"", "0,0", "1", "1,2,3", "a,1", "0,-1", "5,1\n5,2"}) {
    EXPECT_FALSE(ParseRates(bad).ok()) << bad;
  }
  EXPECT_EQ(ParseRates("0,1\n0.5,x").status().message(), "line 2: 'x' is not a rate per second from 0 to 1000000");
  EXPECT_EQ(ParseRates("0,1e9").status().message(), "line 1: '1e9' is not a rate per second from 0 to 1000000");
  EXPECT_EQ(ParseRates("-1,1").status().message(), "line 1: '-1' is not a time in seconds from 0 to 1000000000");
  EXPECT_EQ(ParseRates("0;1").status().message(), "line 1: two numbers are wanted, 'seconds,rate'");
}

TEST(LoadPlanTest, AClosedLoopHasNoTimesAndTenantsTakeTurns) {
  const auto all = All({.tenants = {{.name = "a"}, {.name = "b"}}, .turns = 3, .conversations = 4});
  ASSERT_EQ(all.size(), 4u);
  EXPECT_FALSE(all[0].at_s.has_value());
  EXPECT_EQ(all[0].turns.size(), 3u);
  EXPECT_NE(all[0].turns[0].text, all[0].turns[1].text);
  EXPECT_EQ(all[3].tenant, 1u);
}

TEST(LoadPlanTest, TracesKeepTimesLengthsAndSharedBeginnings) {
  workload::Trace trace{.block_tokens = 4, .requests = {}};
  trace.requests.push_back({.at_s = 0, .input_tokens = 10, .output_tokens = 3, .block_hashes = {7, 8}});
  trace.requests.push_back({.at_s = 6, .input_tokens = 12, .output_tokens = 5, .block_hashes = {7, 8, 9}});
  const auto all = All({.trace = trace, .speed = 2, .token_vocab = 1000});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_DOUBLE_EQ(*all[1].at_s, 3);
  EXPECT_EQ(all[0].turns[0].max_tokens, 3u);
  const std::vector<TokenId>&one = all[0].turns[0].tokens, &two = all[1].turns[0].tokens;
  ASSERT_EQ(one.size(), 10u);
  ASSERT_EQ(two.size(), 12u);
  EXPECT_TRUE(std::equal(one.begin(), one.begin() + 8, two.begin()));
  EXPECT_FALSE(std::equal(one.begin() + 8, one.end(), two.begin() + 8));

  const auto half = All({.trace = trace, .length_scale = 0.5, .token_vocab = 1000});
  EXPECT_EQ(half[0].turns[0].tokens.size(), 5u);
  EXPECT_EQ(half[1].turns[0].tokens.size(), 6u);
  EXPECT_EQ(half[1].turns[0].tokens[3], half[0].turns[0].tokens[3]);

  // As words: as many, and as much shared.
  const auto words = All({.trace = trace});
  EXPECT_EQ(std::ranges::count(words[0].turns[0].text, ' '), 9);
}

TEST(LoadPlanTest, WhatDoesNotFitTogetherIsRefused) {
  workload::Trace trace;
  trace.requests.push_back({.input_tokens = 1});
  EXPECT_FALSE(LoadPlan::Make({.rate = 1, .trace = trace}).ok());
  EXPECT_FALSE(LoadPlan::Make({.tenants = {{.name = "a", .rate = 1}, {.name = "b"}}}).ok());
  EXPECT_FALSE(LoadPlan::Make({.turns = 2, .token_vocab = 100}).ok());
}

TEST(LoadDatasetTest, BothForms) {
  const auto inputs = ParseDataset(R"([{"input":"a\nb","output_length":7},{"input":"c","output_length":0}])");
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  ASSERT_EQ(inputs->size(), 2u);
  EXPECT_EQ((*inputs)[0].turns[0].text, "a\nb");
  EXPECT_EQ((*inputs)[0].turns[0].max_tokens, 7u);
  EXPECT_EQ((*inputs)[1].turns[0].max_tokens, 1u);

  const auto chats = ParseDataset(R"([
    {"conversations":[{"from":"gpt","value":"x"},{"from":"human","value":"q1"},{"from":"gpt","value":"12345678"},
                      {"from":"human","value":"q2"},{"from":"gpt","value":"1234"},{"from":"human","value":"not answered"}]},
    {"conversations":[]}])");
  ASSERT_TRUE(chats.ok()) << chats.status();
  ASSERT_EQ(chats->size(), 1u);
  ASSERT_EQ((*chats)[0].turns.size(), 2u);
  EXPECT_EQ((*chats)[0].turns[0].max_tokens, 2u);
  EXPECT_EQ((*chats)[0].turns[1].text, "q2");
}

TEST(LoadDatasetTest, FaultsNameTheEntry) {
  for (const char* bad : {"", "{", "{}", "[]", "[1]", R"([{"input":1}])", R"([{"input":"a"}])",
                          R"([{"input":"a","output_length":-1}])", R"([{"input":"a","output_length":1e9}])",
                          R"([{"conversations":1}])", R"([{"conversations":[{"from":"human"}]}])"}) {
    EXPECT_FALSE(ParseDataset(bad).ok()) << bad;
  }
  EXPECT_THAT(ParseDataset(R"([{"input":"a","output_length":1},{"input":2}])").status().message(),
              HasSubstr("entry 1"));
}

TEST(LoadPlanTest, SingleTurnsOfADataSetGoOnWithTheLastLinesOfOthers) {
  const auto samples = ParseDataset(
      R"([{"input":"one\nq1","output_length":1},{"input":"two\nq2","output_length":2},{"input":"three\n","output_length":3}])");
  ASSERT_TRUE(samples.ok());
  const auto all = All({.dataset = *samples, .max_tokens = 9, .turns = 2, .conversations = 3});
  std::set<std::string> first, second;
  for (const PlannedConversation& conversation : all) {
    ASSERT_EQ(conversation.turns.size(), 2u);
    EXPECT_EQ(conversation.turns[0].max_tokens, 9u);
    first.insert(conversation.turns[0].text);
    second.insert(conversation.turns[1].text);
  }
  EXPECT_THAT(first, ElementsAre("one\nq1", "three\n", "two\nq2"));
  EXPECT_THAT(second, ElementsAre("Go on.", "q1", "q2"));
}

}  // namespace
}  // namespace kvist::lab
