#include "kv/kv_memory.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/prng.h"
#include "kv/tokens_testutil.h"

namespace kvist::kv {
namespace {

/// Computes a whole sequence and keeps it open.
uint32_t Fill(KvMemory& memory, RequestId id, const std::vector<TokenId>& tokens, uint64_t cache_namespace = 0) {
  uint32_t cached = memory.Begin(id, cache_namespace, tokens);
  EXPECT_TRUE(memory.Reserve(id, static_cast<uint32_t>(tokens.size())));
  memory.Commit(id, std::span(tokens).subspan(cached));
  return cached;
}

TEST(KvMemory, SecondPromptReusesAllButTheLastToken) {
  KvMemory memory({.frames_count = 12});
  EXPECT_EQ(Fill(memory, RequestId{1}, Tokens(40)), 0u);
  memory.End(RequestId{1});
  EXPECT_EQ(Fill(memory, RequestId{2}, Tokens(40)), 39u);
  EXPECT_EQ(Fill(memory, RequestId{3}, Tokens(32)), 31u);
  EXPECT_EQ(memory.stats().copied_blocks, 2u);
  memory.CheckInvariants();
}

TEST(KvMemory, SaysWhoComputedWhatASequenceFound) {
  KvMemory memory({.frames_count = 16});
  Fill(memory, RequestId{1}, Tokens(40));
  memory.End(RequestId{1}, {.now = TimeNs{50}});
  const std::vector<TokenId> other = Tokens(60);
  EXPECT_EQ(memory.Begin(RequestId{2}, 0, other), 40u);
  std::vector<ReusedPart> parts = memory.ReusedParts(RequestId{2});
  ASSERT_EQ(parts.size(), 2u);
  for (const ReusedPart& part : parts) {
    EXPECT_EQ(part.computed_by, RequestId{1});
    EXPECT_EQ(part.computed_at, TimeNs{50});
    EXPECT_EQ(part.tokens, part.copied ? 8u : 32u);
  }
  ASSERT_TRUE(memory.Reserve(RequestId{2}, 60));
  memory.Commit(RequestId{2}, std::span(other).subspan(40));
  EXPECT_EQ(memory.Begin(RequestId{3}, 0, Tokens(60)), 48u);
  parts = memory.ReusedParts(RequestId{3});
  ASSERT_EQ(parts.size(), 2u);  // The first sequence's blocks, and one of the second, which still runs.
  EXPECT_EQ(parts[0].computed_by, RequestId{1});
  EXPECT_EQ(parts[1].computed_by, RequestId{2});
  EXPECT_EQ(parts[1].computed_at, kTimeNever);
  EXPECT_EQ(memory.Begin(RequestId{4}, /*cache_namespace=*/9, Tokens(60)), 0u);
  EXPECT_TRUE(memory.ReusedParts(RequestId{4}).empty());
}

TEST(KvMemory, NamespacesNeverShare) {
  KvMemory memory({.frames_count = 16});
  Fill(memory, RequestId{1}, Tokens(33), /*cache_namespace=*/2);
  EXPECT_EQ(Fill(memory, RequestId{2}, Tokens(33), /*cache_namespace=*/3), 0u);
  EXPECT_EQ(Fill(memory, RequestId{3}, Tokens(33), /*cache_namespace=*/2), 32u);
  memory.CheckInvariants();
}

TEST(KvMemory, NamespacesThatNobodyUsesLeaveNothingBehind) {
  KvMemory memory({.frames_count = 16});
  for (uint64_t i = 0; i < 100; ++i) {
    Fill(memory, RequestId{i}, Tokens(33), /*cache_namespace=*/i);
    memory.End(RequestId{i});
    memory.CheckInvariants();
  }
  EXPECT_LE(memory.tree().roots_count(), 6u);  // 16 frames hold the blocks of five texts.
}

TEST(KvMemory, SameBlockAfterAnotherHistoryIsAnotherBlock) {
  KvMemory memory({.frames_count = 16});
  std::vector<TokenId> first = Tokens(33), second = Tokens(33);
  second[0] = TokenId{99};
  Fill(memory, RequestId{1}, first);
  EXPECT_EQ(Fill(memory, RequestId{2}, second), 0u);
  memory.CheckInvariants();
}

TEST(KvMemory, TwoSequencesThatComputeTheSameKeepOneCopy) {
  KvMemory memory({.frames_count = 16});
  std::vector<TokenId> tokens = Tokens(33);
  EXPECT_EQ(memory.Begin(RequestId{1}, 0, tokens), 0u);
  EXPECT_EQ(memory.Begin(RequestId{2}, 0, tokens), 0u);
  for (uint64_t id : {1, 2}) {
    ASSERT_TRUE(memory.Reserve(RequestId{id}, 33));
    memory.Commit(RequestId{id}, tokens);
  }
  memory.CheckInvariants();
  EXPECT_EQ(memory.counts().referenced, 4u);  // Two shared full blocks, two open ones.
}

TEST(KvMemory, FullPoolRefusesAndChangesNothing) {
  KvMemory memory({.frames_count = 4});
  Fill(memory, RequestId{1}, Tokens(48));
  memory.Begin(RequestId{2}, 0, Tokens(40, 100));
  EXPECT_FALSE(memory.Reserve(RequestId{2}, 40));
  EXPECT_EQ(memory.BlocksHeld(RequestId{2}), 0u);
  memory.End(RequestId{1});
  EXPECT_TRUE(memory.Reserve(RequestId{2}, 40));
  memory.CheckInvariants();
}

TEST(KvMemory, ForgetsTheDeepestBlockOfTheOldestSequenceFirst) {
  KvMemory memory({.frames_count = 4});
  Fill(memory, RequestId{1}, Tokens(64));
  memory.End(RequestId{1});
  Fill(memory, RequestId{2}, Tokens(16, 500));  // Takes one frame: the fourth block of the first sequence.
  EXPECT_EQ(memory.stats().evicted_blocks, 1u);
  EXPECT_EQ(memory.Begin(RequestId{3}, 0, Tokens(64)), 48u);
  memory.CheckInvariants();
}

/// What is read from a tier goes behind whole blocks that are there. A block whose beginning matches may hold an
/// operation that makes others needless: without it they are needed.
TEST(KvMemory, ALoadBeginsWhereItsOwnBlocksAreNeeded) {
  KvMemory memory({.frames_count = 8});
  const CacheOp op{.at = 54, .begin = 1, .end = 53};
  std::vector<TokenId> text = Tokens(64);
  ASSERT_EQ(memory.Begin(RequestId{1}, 0, text, {&op, 1}), 0u);
  ASSERT_TRUE(memory.Reserve(RequestId{1}, 64));
  memory.Commit(RequestId{1}, std::span(text).first(54));
  memory.Commit(RequestId{1}, std::span(text).subspan(54));
  // Somebody takes the free frames, and those of the two blocks that the operation has dropped.
  Fill(memory, RequestId{2}, Tokens(96), /*cache_namespace=*/1);
  memory.End(RequestId{1});
  memory.End(RequestId{2});
  text[60] = TokenId{99};
  text.resize(80);
  const auto whole = std::span(text).first(64);
  EXPECT_EQ(memory.Begin(RequestId{3}, 0, text, {&op, 1}), 60u);  // A part of a block, for which they are needless.
  memory.End(RequestId{3});
  EXPECT_EQ(memory.CachedBeginning(0, whole, {&op, 1}).tokens, 16u);
  std::vector<FrameId> frames;
  ASSERT_TRUE(memory.BeginLoad(RequestId{4}, 0, whole, {&op, 1}, BlockSource::kColdMemory, frames));
  EXPECT_EQ(frames.size(), 3u);
  memory.EndLoad(RequestId{4}, whole, 3, TimeNs{1});
  EXPECT_EQ(memory.Begin(RequestId{5}, 0, text, {&op, 1}), 64u);
  memory.End(RequestId{4});
  const std::vector<ReusedPart> parts = memory.ReusedParts(RequestId{5});
  ASSERT_GE(parts.size(), 2u);
  EXPECT_EQ(parts.front().source, BlockSource::kComputed);
  EXPECT_EQ(parts.back().source, BlockSource::kColdMemory);
  memory.End(RequestId{5});
  EXPECT_EQ(memory.CachedBeginning(0, whole, {&op, 1}).tokens, 64u);
  memory.CheckInvariants();
}

TEST(KvMemory, WhatWasLoadedIsHeldUntilTheLoadEnds) {
  KvMemory memory({.frames_count = 8});
  const std::vector<TokenId> text = Tokens(96);
  std::vector<FrameId> frames;
  ASSERT_TRUE(memory.BeginLoad(RequestId{1}, 0, text, {}, BlockSource::kDrive, frames));
  EXPECT_EQ(memory.AvailableFrames(), 2u);
  memory.EndLoad(RequestId{1}, text, 6, TimeNs{1});
  EXPECT_EQ(memory.AvailableFrames(), 2u);
  memory.Begin(RequestId{2}, 0, Tokens(48, /*first=*/500));
  EXPECT_FALSE(memory.Reserve(RequestId{2}, 48));  // For others there are two frames.
  CachedPart part = memory.CachedBeginning(0, text, {});
  EXPECT_EQ(part.tokens, 96u);
  EXPECT_EQ(part.blocks_shared, 6u);
  EXPECT_EQ(memory.Begin(RequestId{3}, 0, std::span(text).first(64)), 63u);
  memory.End(RequestId{3});
  memory.End(RequestId{1});
  part = memory.CachedBeginning(0, text, {});
  EXPECT_EQ(part.tokens, 96u);
  EXPECT_EQ(part.blocks_shared, 0u);
  EXPECT_TRUE(memory.Reserve(RequestId{2}, 48));
  memory.End(RequestId{2});
  memory.CheckInvariants();
}

TEST(KvMemory, DroppedSlotsAreThoseOfBlocksThatKeepOthers) {
  KvMemory memory({.frames_count = 64});
  std::vector<TokenId> text;
  for (uint32_t i = 0; i < 100; ++i) text.push_back(TokenId{i});
  const std::vector<CacheOp> ops = {{.at = 90, .begin = 10, .end = 54}};  // Blocks 1 and 2 go; 6 and 6 slots stay.
  const RequestId id{1};
  memory.Begin(id, 0, text, ops);
  ASSERT_TRUE(memory.Reserve(id, 100));
  memory.Commit(id, std::span(text).first(90));
  EXPECT_EQ(memory.Figures().dropped_slots, 12u);
  memory.Commit(id, std::span(text).subspan(90));
  EXPECT_EQ(memory.Figures().dropped_slots, 12u);
  memory.End(id);
  EXPECT_EQ(memory.Figures().dropped_slots, 0u);
}

}  // namespace
}  // namespace kvist::kv
