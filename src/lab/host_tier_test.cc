#include "lab/host_tier.h"

#include <gtest/gtest.h>

namespace kvist::lab {
namespace {

/// Blocks of 1000 bytes over a byte a nanosecond, 50 ns before each transfer.
HostTierOptions Options(uint64_t blocks_max) {
  HostTierOptions options{.blocks_max = blocks_max, .block_bytes = 1000, .link = {.bandwidth = 1e9, .setup_ns = 50}};
  options.link.efficiency = device::Curve(1);
  return options;
}

std::vector<kv::ContentId> Ids(std::initializer_list<uint64_t> values) {
  std::vector<kv::ContentId> ids;
  for (const uint64_t value : values) ids.push_back({.low = value, .high = 0});
  return ids;
}

kv::ColdTicket Store(HostTier& tier, std::initializer_list<uint64_t> values, int64_t now_ns) {
  std::vector<kv::ColdWrite> writes;
  for (const kv::ContentId& id : Ids(values)) writes.push_back({.id = id});
  return tier.Store(writes, TimeNs{now_ns});
}

kv::ColdTicket Load(HostTier& tier, std::initializer_list<uint64_t> values, int64_t now_ns) {
  std::vector<kv::ColdRead> reads;
  for (const kv::ContentId& id : Ids(values)) reads.push_back({.id = id});
  return tier.Load(reads, TimeNs{now_ns});
}

kv::ColdNews Poll(HostTier& tier, int64_t now_ns, bool wait = false) {
  kv::ColdNews news;
  tier.Poll(TimeNs{now_ns}, news, wait);
  return news;
}

TEST(HostTier, BlocksAreThereWhenTheyHaveArrived) {
  HostTier tier(Options(10));
  const kv::ColdTicket stored = Store(tier, {1, 2, 3}, 100);
  EXPECT_EQ(tier.Lookup(Ids({1, 2, 3})).blocks, 0u);
  EXPECT_EQ(tier.NextDoneNs(), 100 + 50 + 3000);
  EXPECT_TRUE(Poll(tier, 3149).stores.empty());
  EXPECT_EQ(Poll(tier, 3150).stores, std::vector{stored});
  EXPECT_FALSE(tier.busy());
  EXPECT_EQ(tier.Lookup(Ids({1, 2, 9, 3})).blocks, 2u) << "the longest beginning";
  EXPECT_EQ(Store(tier, {2, 4}, 4000), kv::ColdTicket{2});
  EXPECT_EQ(tier.NextDoneNs(), 4000 + 50 + 1000) << "2 is there already";
}

TEST(HostTier, LoadsWaitForEachOtherAndNotForStores) {
  HostTier tier(Options(10));
  Store(tier, {1, 2, 3, 4}, 0);
  Poll(tier, 10'000);
  Store(tier, {5, 6, 7, 8, 9}, 10'000);
  EXPECT_EQ(tier.LoadNs({.blocks = 2}), 2050);
  const kv::ColdTicket first = Load(tier, {1, 2}, 10'000), second = Load(tier, {3, 9}, 10'500);
  EXPECT_EQ(tier.LoadNs({.blocks = 1}), 10'000 + 2050 + 1050 - 10'500 + 1050) << "behind both";
  const kv::ColdNews news = Poll(tier, 13'100);
  ASSERT_EQ(news.loads.size(), 2u);
  EXPECT_EQ(news.loads[0].ticket, first);
  EXPECT_TRUE(news.loads[0].missing.empty());
  EXPECT_EQ(news.loads[1].ticket, second);
  EXPECT_EQ(news.loads[1].missing, std::vector{1u}) << "9 is on its way to the host";
  EXPECT_TRUE(news.stores.empty());
  EXPECT_EQ(tier.to_device().waited_ns, 1550);
  EXPECT_EQ(tier.to_host().waited_ns, 0);
  EXPECT_EQ(Poll(tier, 13'100, /*wait=*/true).stores.size(), 1u);
}

TEST(HostTier, WhatWasUsedLongestAgoGivesWayDeepestFirst) {
  HostTier tier(Options(4));
  Store(tier, {1, 2}, 0);
  Poll(tier, 10'000);
  Store(tier, {3, 4}, 10'000);
  Poll(tier, 20'000);
  Load(tier, {1, 2}, 20'000);
  Poll(tier, 30'000);
  Store(tier, {5}, 30'000);
  Poll(tier, 40'000);
  EXPECT_EQ(tier.Lookup(Ids({4})).blocks, 0u);
  EXPECT_EQ(tier.Lookup(Ids({3})).blocks, 1u);
  EXPECT_EQ(tier.Lookup(Ids({1, 2})).blocks, 2u);
  const kv::TierFigures figures = tier.Figures().front();
  EXPECT_EQ(figures.blocks, 4u);
  EXPECT_EQ(figures.evicted_blocks, 1u);
  EXPECT_EQ(figures.stored_blocks, 5u);
  EXPECT_EQ(figures.read_blocks, 2u);
}

TEST(HostTier, ForgetsAlsoWhatIsOnItsWayAndCountsALookupWhenTold) {
  HostTier tier(Options(10));
  Store(tier, {1, 2}, 0);
  Poll(tier, 10'000);
  Store(tier, {3, 4}, 10'000);
  tier.Forget(Ids({2, 3, 9}));
  Poll(tier, 20'000);
  const kv::ColdRun run = tier.Lookup(Ids({1, 2}));
  EXPECT_EQ(run.blocks, 1u);
  EXPECT_EQ(tier.Lookup(Ids({3})).blocks, 0u);
  EXPECT_EQ(tier.Lookup(Ids({4})).blocks, 1u);
  EXPECT_EQ(tier.Figures().front().lookup_blocks, 0u);
  tier.CountLookup(run);
  const kv::TierFigures figures = tier.Figures().front();
  EXPECT_EQ(figures.lookup_blocks, 2u);
  EXPECT_EQ(figures.hit_blocks, 1u);
  EXPECT_EQ(figures.forgotten_blocks, 1u) << "what had arrived";
}

}  // namespace
}  // namespace kvist::lab
