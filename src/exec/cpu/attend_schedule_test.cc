#include "exec/cpu/attend_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/prng.h"

namespace kvist::exec {
namespace {

using attention::kSectionBlocks;

/// Plans without bytes: a frame is just an address.
struct Batch : StepBatch {
  std::vector<std::byte> frames = std::vector<std::byte>(1 << 16);
  uint32_t next = 0;

  std::vector<attention::ViewBlock> NewBlocks(uint32_t count, uint32_t turn = 0) {
    std::vector<attention::ViewBlock> blocks;
    for (uint32_t i = 0; i < count; ++i) {
      blocks.push_back({.frame = frames.data() + next++, .count = kv::kBlockTokens, .turn = turn});
    }
    return blocks;
  }

  void AddRun(std::vector<attention::ViewBlock> view, uint32_t query_tokens = 1) {
    const attention::ViewBlock own = NewBlocks(1).front();
    view.push_back(own);
    uint32_t tokens = 0;
    for (const attention::ViewBlock& block : view) tokens += block.count;
    runs.push_back({.rows = query_tokens,
                    .view_begin = static_cast<uint32_t>(view_blocks.size()),
                    .view_count = static_cast<uint32_t>(view.size()),
                    .query_index = tokens - query_tokens});
    view_blocks.insert(view_blocks.end(), view.begin(), view.end());
  }

  std::span<const attention::ViewBlock> View(uint32_t run) const {
    return std::span(view_blocks).subspan(runs[run].view_begin, runs[run].view_count);
  }
};

std::vector<attention::ViewBlock> Joined(std::vector<attention::ViewBlock> a,
                                         const std::vector<attention::ViewBlock>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Every run is served whole, or all of its sections are, in order, at the right place and with the right blocks; sums
/// do not overlap.
void ExpectWhole(const AttendSchedule& schedule, const Batch& batch) {
  std::vector<uint32_t> served(batch.runs.size());
  size_t sums = 0;
  for (const AttendItem& item : schedule.items()) {
    ASSERT_GE(item.readers_count, 1u);
    ASSERT_LE(item.readers_count, AttendSchedule::kReadersMax);
    if (item.section == AttendItem::kWhole) {
      ASSERT_EQ(item.readers_count, 1u);
      ++served[schedule.ReadersOf(item)[0]];
      continue;
    }
    EXPECT_EQ(item.sums, sums);
    sums += item.readers_count;
  }
  EXPECT_EQ(schedule.sums_tokens(), sums);
  for (const AttendMerge& merge : schedule.merges()) {
    ++served[merge.run];
    ASSERT_EQ(batch.runs[merge.run].rows, 1u);
    const auto view = batch.View(merge.run);
    ASSERT_EQ(merge.parts.size(), attention::SectionsOf(view.size()));
    uint32_t start = 0;
    for (uint32_t section = 0; section < merge.parts.size(); ++section) {
      const AttendPart& part = merge.parts[section];
      const AttendItem& item = schedule.items()[part.item];
      ASSERT_LT(part.reader, item.readers_count);
      EXPECT_EQ(schedule.ReadersOf(item)[part.reader], merge.run);
      EXPECT_EQ(item.section, section);
      EXPECT_EQ(item.start, start);
      const size_t first = size_t{section} * kSectionBlocks;
      const auto mine = view.subspan(first, std::min<size_t>(kSectionBlocks, view.size() - first));
      for (const attention::ViewBlock& block : mine) start += block.count;
      EXPECT_EQ(item.start + item.tokens, start);
      const auto leader = batch.View(schedule.ReadersOf(item)[0]);
      EXPECT_TRUE(std::ranges::equal(leader.subspan(first, mine.size()), mine));
    }
  }
  EXPECT_TRUE(std::ranges::all_of(served, [](uint32_t n) { return n == 1; }));
}

/// Readers of all items, largest first.
std::vector<uint32_t> Readers(const AttendSchedule& schedule) {
  std::vector<uint32_t> readers;
  for (const AttendItem& item : schedule.items()) readers.push_back(item.readers_count);
  std::ranges::sort(readers, std::greater());
  return readers;
}

TEST(AttendSchedule, NestedBeginningsAreReadByAllWhoHaveThem) {
  Batch batch;
  const auto all = batch.NewBlocks(4 * kSectionBlocks), two = batch.NewBlocks(2 * kSectionBlocks + 5);
  batch.AddRun(Joined(all, two));
  batch.AddRun(all);
  batch.AddRun(Joined(all, two));
  AttendSchedule schedule;
  schedule.Build(batch, {});
  ExpectWhole(schedule, batch);
  // Four sections by three, two by two, and an end for each.
  EXPECT_EQ(Readers(schedule), (std::vector<uint32_t>{3, 3, 3, 3, 2, 2, 1, 1, 1}));
  schedule.Build(batch, {.share = false});
  ExpectWhole(schedule, batch);
  EXPECT_EQ(Readers(schedule), (std::vector<uint32_t>{1, 1, 1}));
  schedule.Build(batch, {.kv_heads = 2, .pieces_wanted = 7, .share = false});  // Six whole pieces are too few.
  ExpectWhole(schedule, batch);
  EXPECT_EQ(schedule.items().size(), 7u + 5 + 7);
}

TEST(AttendSchedule, OnlyEqualSectionsOfSingleTokensAreReadTogether) {
  Batch batch;
  const auto blocks = batch.NewBlocks(kSectionBlocks);
  auto turned = blocks, shorter = blocks;
  turned[3].turn = 1;
  shorter[31].count = 7;
  batch.AddRun(blocks);
  batch.AddRun(turned);
  batch.AddRun(shorter);
  batch.AddRun(blocks, /*query_tokens=*/2);
  batch.AddRun(std::vector(blocks.begin(), blocks.end() - 1));  // Its section ends with a block of its own.
  AttendSchedule schedule;
  schedule.Build(batch, {});
  ExpectWhole(schedule, batch);
  EXPECT_TRUE(schedule.merges().empty());
}

TEST(AttendSchedule, TokensCountOncePerItemAndOnlyInsideWindows) {
  Batch batch;
  const auto all = batch.NewBlocks(2 * kSectionBlocks);  // 1024 tokens.
  for (uint32_t i = 0; i < 5; ++i) batch.AddRun(Joined(all, batch.NewBlocks(i)));
  batch.AddRun(batch.NewBlocks(9), /*query_tokens=*/16);
  AttendSchedule schedule;
  const uint64_t own = 16 * (1 + 2 + 3 + 4 + 5), alone = 160;
  schedule.Build(batch, {});
  EXPECT_EQ(schedule.TokensRead(batch, 0), 1024 + own + alone);
  // The longest sequence sees 80 tokens of its own; the shortest 16, and 84 of the beginning.
  EXPECT_EQ(schedule.TokensRead(batch, 100), 84 + own + 115);
  schedule.Build(batch, {.share = false});
  EXPECT_EQ(schedule.TokensRead(batch, 0), 5 * 1024 + own + alone);
  EXPECT_EQ(schedule.TokensRead(batch, 100), 5 * 100 + 115);
}

TEST(AttendSchedule, RandomTreesOfViewsAreServedWhole) {
  Prng prng(9);
  AttendSchedule schedule;
  for (int round = 0; round < 60; ++round) {
    Batch batch;
    std::vector<std::vector<attention::ViewBlock>> beginnings(1);
    for (int i = 0; i < 6; ++i) {
      const auto& before = beginnings[prng.Below(beginnings.size())];
      const auto length = static_cast<uint32_t>(prng.Below(3) == 0 ? prng.Below(90) : kSectionBlocks * prng.Below(3));
      beginnings.push_back(Joined(before, batch.NewBlocks(length, static_cast<uint32_t>(prng.Below(2)))));
    }
    const auto runs = static_cast<uint32_t>(1 + prng.Below(round % 10 == 0 ? 150 : 12));
    for (uint32_t run = 0; run < runs; ++run) {
      batch.AddRun(beginnings[prng.Below(beginnings.size())], prng.Below(6) == 0 ? 3 : 1);
    }
    for (const bool share : {true, false}) {
      schedule.Build(batch, {.kv_heads = 3, .pieces_wanted = static_cast<uint32_t>(prng.Below(20)), .share = share});
      ExpectWhole(schedule, batch);
    }
  }
}

}  // namespace
}  // namespace kvist::exec
