#include "lab/load_stats.h"

#include <gtest/gtest.h>

namespace kvist::lab {
namespace {

TEST(LoadStatsTest, PercentilesAreLinearBetweenNeighbours) {
  // 1..5: the 90th percentile lies at index 3.6, the 99th at 3.96.
  const Distribution five = DistributionOf({5, 3, 1, 2, 4});
  EXPECT_EQ(five.count, 5u);
  EXPECT_DOUBLE_EQ(five.mean, 3);
  EXPECT_DOUBLE_EQ(five.p50, 3);
  EXPECT_DOUBLE_EQ(five.p90, 4.6);
  EXPECT_DOUBLE_EQ(five.p99, 4.96);
  EXPECT_DOUBLE_EQ(five.max, 5);
  const Distribution one = DistributionOf({7});
  EXPECT_DOUBLE_EQ(one.p50, 7);
  EXPECT_DOUBLE_EQ(one.p99, 7);
  EXPECT_EQ(DistributionOf({}).count, 0u);
}

TEST(LoadStatsTest, Fairness) {
  EXPECT_DOUBLE_EQ(JainIndex(std::vector<double>{3, 3, 3}), 1);
  EXPECT_DOUBLE_EQ(JainIndex(std::vector<double>{1, 0, 0, 0}), 0.25);
  EXPECT_DOUBLE_EQ(JainIndex(std::vector<double>{1, 3}), 0.8);  // 16 / (2 * 10)
  EXPECT_DOUBLE_EQ(JainIndex({}), 1);
  EXPECT_DOUBLE_EQ(JainIndex(std::vector<double>{0, 0}), 1);
  EXPECT_DOUBLE_EQ(MinOverMax(std::vector<double>{2, 8, 4}), 0.25);
  EXPECT_DOUBLE_EQ(MinOverMax({}), 1);
}

LoadRecord Answered(double due_s, double sent_s, std::vector<double> text_s, double end_s, uint32_t tokens) {
  return {.due_s = due_s,
          .sent_s = sent_s,
          .end_s = end_s,
          .text_s = std::move(text_s),
          .prompt_tokens = 100,
          .cached_tokens = 60,
          .output_tokens = tokens,
          .counted_by_server = true,
          .status = 200};
}

TEST(LoadStatsTest, TimesCountFromWhenARequestWasDue) {
  // Due at 1, sent two seconds late, first text half a second after that.
  const LoadRecord late = Answered(1, 3, {3.5, 3.6, 3.8}, 4, 4);
  EXPECT_DOUBLE_EQ(late.ttft_s().value(), 2.5);
  EXPECT_DOUBLE_EQ(late.e2e_s(), 3);
  EXPECT_DOUBLE_EQ(late.lag_s(), 2);
  EXPECT_NEAR(late.tpot_s().value(), 0.1, 1e-12);  // 0.3 s for the three tokens after the first
  EXPECT_FALSE(Answered(0, 0, {0.5}, 1, 1).tpot_s().has_value());
  EXPECT_FALSE(Answered(0, 0, {}, 1, 0).ttft_s().has_value());
}

TEST(LoadStatsTest, SumsByTenantAndGoal) {
  std::vector<LoadRecord> records;
  records.push_back(Answered(0, 0, {0.1, 0.2, 0.3}, 0.3, 3));  // TTFT 0.1, TPOT 0.1
  records.push_back(Answered(0, 0.5, {0.9, 1.0}, 1.1, 2));     // TTFT 0.9, TPOT 0.1
  records.push_back(Answered(1, 1, {1.1, 2.1}, 2.2, 2));       // TTFT 0.1, TPOT 1.0
  records.push_back({.due_s = 1, .sent_s = 1, .end_s = 1.1, .outcome = LoadOutcome::kRefused, .status = 429});
  records.push_back({.due_s = 1, .sent_s = 1, .end_s = 9, .outcome = LoadOutcome::kInterrupted});
  for (uint32_t i = 2; i < records.size(); ++i) records[i].tenant = 1;

  const LoadSummary summary = SummariseLoad(records, 2, {.ttft_s = 0.5, .tpot_s = 0.5}, 10);
  EXPECT_EQ(summary.all.requests, 4u);
  EXPECT_EQ(summary.all.answered(), 3u);
  EXPECT_EQ(summary.all.by_outcome[static_cast<size_t>(LoadOutcome::kRefused)], 1u);
  EXPECT_EQ(summary.all.by_outcome[static_cast<size_t>(LoadOutcome::kInterrupted)], 1u);
  EXPECT_EQ(summary.all.output_tokens, 7u);
  EXPECT_EQ(summary.all.prompt_tokens, 300u);
  EXPECT_EQ(summary.all.cached_tokens, 180u);
  EXPECT_DOUBLE_EQ(summary.all.output_tokens_per_s, 0.7);
  EXPECT_EQ(summary.all.ttft_s.count, 3u);
  EXPECT_EQ(summary.all.itl_s.count, 4u);
  EXPECT_DOUBLE_EQ(summary.all.itl_s.max, 1.0);
  EXPECT_EQ(summary.all.good, 1u);
  EXPECT_DOUBLE_EQ(summary.all.goodput_per_s, 0.1);
  EXPECT_DOUBLE_EQ(summary.all.good_share(), 0.25);
  // Output tokens 5 and 2; good shares 1/2 and 0.
  EXPECT_NEAR(summary.jain_tokens, 49.0 / 58.0, 1e-12);
  EXPECT_DOUBLE_EQ(summary.min_max_tokens, 0.4);
  EXPECT_DOUBLE_EQ(summary.jain_good, 0.5);
  EXPECT_EQ(summary.min_max_good, 0);
  // Under way at 1.05: the second answer, the third, the refused one, the interrupted one.
  EXPECT_EQ(summary.running_max, 4u);
}

TEST(LoadStatsTest, WithoutAGoalEveryAnswerIsGood) {
  const std::vector<LoadRecord> records{Answered(0, 0, {5}, 9, 1), {.outcome = LoadOutcome::kCutOff}};
  EXPECT_EQ(SummariseLoad(records, 1, {}, 1).all.good, 1u);
}

}  // namespace
}  // namespace kvist::lab
