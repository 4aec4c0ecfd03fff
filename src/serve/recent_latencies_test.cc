#include "serve/recent_latencies.h"

#include <gtest/gtest.h>

#include <numeric>

namespace kvist::serve {
namespace {

TEST(RecentLatencies, PercentilesAreInMillisecondsAndOfNothingNull) {
  std::vector<double> seconds(101);
  std::iota(seconds.rbegin(), seconds.rend(), 0.0);
  const boost::json::object all = PercentilesMs(seconds);
  EXPECT_EQ(all.at("count"), 101);
  EXPECT_EQ(all.at("p50"), 50e3);
  EXPECT_EQ(all.at("p90"), 90e3);
  EXPECT_EQ(all.at("p99"), 99e3);
  EXPECT_EQ(PercentilesMs({0.25}).at("p99"), 250.0);
  EXPECT_TRUE(PercentilesMs({}).at("p50").is_null());
}

TEST(RecentLatencies, OnlyTheLastMinutesAndAtMostSoManyCount) {
  RecentLatencies recent(3);
  for (int64_t second = 0; second < 5; ++second) {
    const auto took = static_cast<double>(second);
    recent.Add({.finished_at = TimeNs{second * 1'000'000'000}, .ttft_s = took, .e2e_s = second == 4 ? -1 : took});
  }
  const boost::json::object kept = recent.Summary(TimeNs{5'000'000'000}, 60);
  EXPECT_EQ(kept.at("ttft_ms").at("count"), 3);
  EXPECT_EQ(kept.at("ttft_ms").at("p50"), 3e3);
  EXPECT_EQ(kept.at("e2e_ms").at("count"), 2) << "what did not happen does not count";
  EXPECT_EQ(kept.at("tpot_ms").at("count"), 0);
  EXPECT_EQ(recent.Summary(TimeNs{5'000'000'000}, 1.5).at("ttft_ms").at("count"), 1);
}

}  // namespace
}  // namespace kvist::serve
