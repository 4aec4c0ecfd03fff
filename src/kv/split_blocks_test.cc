#include "kv/split_blocks.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kv/kv_memory.h"

namespace kvist::kv {
namespace {

const PageLayout kLayout = PageLayout::Dense(KvType::kF16, 4, 2, 64, 64);  // 16 pages of one size.

/// A memory in which one request has computed some text.
struct Filled {
  explicit Filled(uint32_t blocks, uint32_t frames = 16) : memory({.frames_count = frames, .layout = kLayout}) {
    for (uint32_t i = 0; i < blocks * kBlockTokens + 1; ++i) tokens.push_back(TokenId{i});
    memory.Begin(RequestId{1}, 0, tokens);
    EXPECT_TRUE(memory.Reserve(RequestId{1}, static_cast<uint32_t>(tokens.size())));
    memory.Commit(RequestId{1}, tokens);
    span = memory.SpanOf(RequestId{1});
  }
  const PageEntry& Page(uint32_t block, uint32_t page) const {
    return memory.spans().PagesOf(memory.spans().FrameOf(span, block))[page];
  }
  KvMemory memory;
  std::vector<TokenId> tokens;
  SpanId span;
};

std::vector<uint32_t> Range(uint32_t begin, uint32_t end) {
  std::vector<uint32_t> pages(end - begin);
  std::iota(pages.begin(), pages.end(), begin);
  return pages;
}

TEST(SplitBlocks, PagesStayWhereTheyAreUntilTheyAreMoved) {
  Filled f(2);
  const FrameId frame = f.memory.spans().FrameOf(f.span, 0);
  ASSERT_TRUE(f.memory.SplitBlock(f.span, 0));
  f.memory.CheckInvariants();
  EXPECT_EQ(f.memory.counts().referenced, 3u);
  for (uint32_t page = 0; page < kLayout.pages(); ++page) {
    EXPECT_EQ(f.Page(0, page),
              (PageEntry{.frame = frame, .slot = static_cast<uint16_t>(page), .state = PageState::kSealed}));
  }
  const std::vector<uint32_t> one = {5};
  const std::optional<BlockCopy> copy = f.memory.MovePages(f.span, 0, one);
  ASSERT_TRUE(copy.has_value());
  f.memory.CheckInvariants();
  EXPECT_EQ(f.Page(0, 5).frame, frame);  // Until the bytes are there.
  f.memory.FinishMove(*copy);
  f.memory.CheckInvariants();
  for (uint32_t page = 0; page < kLayout.pages(); ++page) EXPECT_EQ(f.Page(0, page).frame == frame, page != 5);
  EXPECT_EQ(f.memory.counts().referenced, 4u);
}

// Four blocks of which a policy keeps one layer of four: together they fit one frame.
TEST(SplitBlocks, WhatIsLeftOfSomeBlocksFitsTheFramesOfFewer) {
  Filled f(4);
  const uint32_t lanes = kLayout.pages() / 4;
  for (uint32_t block = 0; block < 4; ++block) {
    ASSERT_TRUE(f.memory.SplitBlock(f.span, block));
    f.memory.DropPages(f.span, block, Range(lanes, kLayout.pages()));
    f.memory.CheckInvariants();
  }
  EXPECT_EQ(f.memory.counts().referenced, 5u);
  for (uint32_t block = 1; block < 4; ++block) {
    const std::optional<BlockCopy> copy = f.memory.MovePages(f.span, block, Range(0, lanes));
    ASSERT_TRUE(copy.has_value());
    f.memory.FinishMove(*copy);
    f.memory.CheckInvariants();
  }
  EXPECT_EQ(f.memory.counts().referenced, 2u);  // And the open block.
  EXPECT_FALSE(f.memory.MergeBlock(f.span, 1).has_value());
  f.memory.End(RequestId{1});
  f.memory.CheckInvariants();
  EXPECT_EQ(f.memory.counts().referenced, 0u);
}

TEST(SplitBlocks, AreForgottenWhenNobodyReferencesThem) {
  Filled f(3);
  ASSERT_TRUE(f.memory.SplitBlock(f.span, 1));
  EXPECT_EQ(f.memory.Begin(RequestId{2}, 0, f.tokens), 48u);
  f.memory.End(RequestId{1});
  f.memory.CheckInvariants();
  EXPECT_EQ(f.memory.Begin(RequestId{3}, 0, f.tokens), 48u);
  f.memory.End(RequestId{2});
  f.memory.End(RequestId{3});
  f.memory.CheckInvariants();
  EXPECT_EQ(f.memory.counts().referenced, 0u);
  EXPECT_EQ(f.memory.Begin(RequestId{4}, 0, f.tokens), 16u);
  f.memory.CheckInvariants();
}

TEST(SplitBlocks, PutTogetherTheyAreCachedAgain) {
  Filled f(3);
  ASSERT_TRUE(f.memory.SplitBlock(f.span, 1));
  const std::optional<BlockCopy> copy = f.memory.MergeBlock(f.span, 1);
  ASSERT_TRUE(copy.has_value());
  EXPECT_FALSE(f.memory.MergeBlock(f.span, 1).has_value());  // Under way.
  EXPECT_FALSE(f.memory.MovePages(f.span, 1, Range(0, 1)).has_value());
  f.memory.End(RequestId{1});  // The move holds the block meanwhile.
  f.memory.CheckInvariants();
  f.memory.FinishMove(*copy);
  f.memory.CheckInvariants();
  EXPECT_EQ(f.memory.counts().referenced, 0u);
  EXPECT_EQ(f.memory.Begin(RequestId{2}, 0, f.tokens), 48u);
}

TEST(SplitBlocks, OnlySealedBlocksOfAViewAreSplit) {
  Filled f(2, 3);
  EXPECT_FALSE(f.memory.SplitBlock(f.span, 2));  // Open.
  ASSERT_TRUE(f.memory.SplitBlock(f.span, 0));
  EXPECT_FALSE(f.memory.SplitBlock(f.span, 0));
  EXPECT_FALSE(f.memory.MovePages(f.span, 0, Range(0, 1)).has_value());  // No frame to move them to.
  EXPECT_FALSE(f.memory.MergeBlock(f.span, 0).has_value());
  f.memory.CheckInvariants();
  KvMemory without({.frames_count = 4});
  const std::vector<TokenId> tokens(17);
  without.Begin(RequestId{1}, 0, tokens);
  ASSERT_TRUE(without.Reserve(RequestId{1}, 17));
  without.Commit(RequestId{1}, tokens);
  EXPECT_FALSE(without.SplitBlock(without.SpanOf(RequestId{1}), 0));  // Nobody said what its pages are.
}

// What somebody wished to stay is not split; what is split does not stay, whatever is wished later.
TEST(SplitBlocks, WishesAndSplitsKeepOutOfEachOthersWay) {
  Filled f(3);
  const RetainRange pin[] = {{.begin = 0, .end = 32, .retention = Retention::kPinned}};
  EXPECT_EQ(f.memory.Begin(RequestId{2}, 0, f.tokens), 48u);
  EXPECT_EQ(f.memory.End(RequestId{1}, {.retain = pin}).pinned_blocks, 2u);
  EXPECT_FALSE(f.memory.SplitBlock(f.span, 0));
  ASSERT_TRUE(f.memory.SplitBlock(f.span, 2));
  f.memory.CheckInvariants();
  const RetainRange high[] = {{.begin = 0, .retention = Retention::kHigh}};
  f.memory.End(RequestId{2}, {.retain = high});
  f.memory.CheckInvariants();
  EXPECT_EQ(f.memory.counts().referenced, 0u);
  EXPECT_EQ(f.memory.Begin(RequestId{3}, 0, f.tokens), 32u);
  f.memory.CheckInvariants();
}

// Sequences that computed the same block at the same time see one, wherever its pages go.
TEST(SplitBlocks, OneTableForAllWhoSeeTheBlock) {
  KvMemory memory({.frames_count = 16, .layout = kLayout});
  const std::vector<TokenId> tokens(33);
  for (const uint64_t id : {1, 2}) memory.Begin(RequestId{id}, 0, tokens);
  for (const uint64_t id : {1, 2}) {
    ASSERT_TRUE(memory.Reserve(RequestId{id}, 33));
    memory.Commit(RequestId{id}, tokens);
  }
  const SpanId first = memory.SpanOf(RequestId{1}), second = memory.SpanOf(RequestId{2});
  ASSERT_TRUE(memory.SplitBlock(second, 0));
  memory.CheckInvariants();
  EXPECT_EQ(memory.spans().FrameOf(first, 0), memory.spans().FrameOf(second, 0));
  memory.End(RequestId{1});
  memory.CheckInvariants();
  const std::optional<BlockCopy> copy = memory.MovePages(second, 0, Range(3, 9));
  ASSERT_TRUE(copy.has_value());
  memory.End(RequestId{2});
  memory.CheckInvariants();
  memory.FinishMove(*copy);
  memory.CheckInvariants();
  EXPECT_EQ(memory.counts().referenced, 0u);
}

}  // namespace
}  // namespace kvist::kv
