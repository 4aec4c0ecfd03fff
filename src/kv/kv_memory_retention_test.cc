// How long the blocks of ended sequences stay when they were wished to: pins, classes, times.

#include <gtest/gtest.h>

#include "kv/kv_memory.h"
#include "kv/tokens_testutil.h"

namespace kvist::kv {
namespace {

class KvMemoryRetention : public testing::Test {
 protected:
  KvMemoryRetention() : memory_({.frames_count = 16, .buckets = 1}) {}
  ~KvMemoryRetention() override { memory_.CheckInvariants(); }

  RequestId Open(const std::vector<TokenId>& tokens, std::vector<CacheOp> ops = {}) {
    const RequestId id{next_++};
    uint32_t computed = memory_.Begin(id, 0, tokens, ops);
    EXPECT_TRUE(memory_.Reserve(id, static_cast<uint32_t>(tokens.size())));
    while (computed < tokens.size()) {
      const uint32_t count = std::min(static_cast<uint32_t>(tokens.size()) - computed, memory_.TokensUntilOp(id));
      memory_.Commit(id, std::span(tokens).subspan(computed, count));
      computed += count;
    }
    return id;
  }
  RetainOutcome Close(RequestId id, std::vector<RetainRange> retain = {}) {
    const RetainOutcome outcome = memory_.End(id, {.retain = retain, .now = now_});
    memory_.CheckInvariants();
    return outcome;
  }
  RetainOutcome Run(const std::vector<TokenId>& tokens, std::vector<RetainRange> retain = {}) {
    return Close(Open(tokens), std::move(retain));
  }
  /// Another text, so long that nothing unpinned stays.
  void Flood() { Run(Tokens(kBlockTokens * memory_.AvailableFrames(), 10000 + 1000 * flood_++)); }
  /// Tokens of the text that are cached, without changing anything but recency.
  uint32_t Cached(std::vector<TokenId> tokens, std::vector<CacheOp> ops = {}) {
    tokens.push_back(TokenId{9999});
    const RequestId id{next_++};
    const uint32_t found = memory_.Begin(id, 0, tokens, ops);
    memory_.End(id, {.now = now_});
    return found;
  }
  void Pass(int64_t ns) {
    now_ = now_ + ns;
    memory_.Expire(now_);
    memory_.CheckInvariants();
  }

  KvMemory memory_;
  TimeNs now_{1000};
  uint64_t next_ = 1;
  uint32_t flood_ = 0;
};

constexpr RetainRange kPinAll{.retention = Retention::kPinned};

TEST_F(KvMemoryRetention, PinnedTextsOutliveAnyNumberOfOthers) {
  const RetainOutcome outcome = Run(Tokens(56), {kPinAll});
  EXPECT_EQ(outcome.pinned_blocks, 4u);
  for (int i = 0; i < 4; ++i) Flood();
  EXPECT_EQ(Cached(Tokens(56)), 56u);
  EXPECT_EQ(memory_.counts().pinned, 4u);
  EXPECT_EQ(memory_.AvailableFrames(), 12u);
}

TEST_F(KvMemoryRetention, WhatAPinnedBlockFollowsIsPinnedTooAndWhatFollowsItIsNot) {
  Run(Tokens(96), {{.begin = 32, .end = 48, .retention = Retention::kPinned}});
  Flood();
  EXPECT_EQ(Cached(Tokens(96)), 48u);
}

TEST_F(KvMemoryRetention, ClassesAreGivenUpInOrder) {
  Run(Tokens(32, 100), {{.retention = Retention::kHigh}});
  Run(Tokens(32, 200));
  Run(Tokens(32, 300), {{.retention = Retention::kLow}});
  Run(Tokens(32, 400));
  Run(Tokens(128, 1000));  // Takes the rest.
  EXPECT_EQ(memory_.stats().evicted_blocks, 0u);
  Run(Tokens(32, 2000));
  EXPECT_EQ(Cached(Tokens(32, 300)), 0u);
  Run(Tokens(64, 3000));
  EXPECT_EQ(Cached(Tokens(32, 200)), 0u);
  EXPECT_EQ(Cached(Tokens(32, 400)), 0u);
  EXPECT_EQ(Cached(Tokens(32, 100)), 32u);
}

TEST_F(KvMemoryRetention, PinsEndWithTheirTimeAndAreThenAsAnyOther) {
  RetainRange pin = kPinAll;
  pin.for_ns = 50;
  Run(Tokens(32), {pin});
  Pass(49);
  Flood();
  EXPECT_EQ(Cached(Tokens(32)), 32u);
  EXPECT_EQ(memory_.NextExpiry(), TimeNs{1050});
  Pass(1);
  EXPECT_EQ(Cached(Tokens(32)), 32u);
  Flood();
  EXPECT_EQ(Cached(Tokens(32)), 0u);
  EXPECT_EQ(memory_.NextExpiry(), kTimeNever);
}

TEST_F(KvMemoryRetention, UseWithAnotherWishExtendsTheTime) {
  RetainRange pin = kPinAll;
  pin.for_ns = 50;
  Run(Tokens(32), {pin});
  Pass(40);
  Run(Tokens(40), {pin});
  Pass(40);
  Flood();
  EXPECT_EQ(Cached(Tokens(40)), 40u);
  Pass(10);
  Flood();
  EXPECT_EQ(Cached(Tokens(40)), 0u);
}

TEST_F(KvMemoryRetention, ForgottenBlocksAreFreeAtTheirTimeWithAllThatFollows) {
  Run(Tokens(96), {{.begin = 32, .end = 64, .for_ns = 10, .forget = true}});
  Pass(9);
  EXPECT_EQ(Cached(Tokens(96)), 96u);
  EXPECT_EQ(memory_.counts().free, 10u);
  Pass(1);
  EXPECT_EQ(memory_.counts().free, 14u);
  EXPECT_EQ(memory_.stats().forgotten_blocks, 4u);
  EXPECT_EQ(memory_.stats().evicted_blocks, 0u);
  EXPECT_EQ(Cached(Tokens(96)), 32u);
}

TEST_F(KvMemoryRetention, WhatIsInUseIsForgottenWhenItsLastUserEnds) {
  Run(Tokens(64), {{.for_ns = 10, .forget = true}});
  const RequestId a = Open(Tokens(80)), b = Open(Tokens(80));
  Pass(10);
  EXPECT_EQ(memory_.counts().cached, 0u);
  Close(a);
  EXPECT_EQ(memory_.counts().referenced, 5u);
  Close(b);
  EXPECT_EQ(memory_.counts().free, 16u);
}

TEST_F(KvMemoryRetention, ForgettingAtOnceLeavesNothing) {
  Run(Tokens(60), {{.for_ns = 0, .forget = true}});
  EXPECT_EQ(memory_.counts().free, 16u);
}

TEST_F(KvMemoryRetention, APinOfALaterPartHoldsWhatWasToBeForgotten) {
  Run(Tokens(64), {{.begin = 0, .end = 16, .for_ns = 10, .forget = true},
                   {.begin = 32, .end = 48, .retention = Retention::kPinned, .for_ns = 30}});
  Pass(10);
  EXPECT_EQ(Cached(Tokens(64)), 64u);
  Pass(20);
  EXPECT_EQ(memory_.counts().free, 16u);
}

TEST_F(KvMemoryRetention, OnlyAShareCanBePinnedAndTheBeginningIs) {
  const RetainOutcome outcome = Run(Tokens(160), {kPinAll});  // 10 blocks; 8 may be pinned.
  EXPECT_EQ(outcome.pinned_blocks, 8u);
  EXPECT_EQ(outcome.not_pinned_blocks, 2u);
  EXPECT_EQ(Run(Tokens(32, 500), {kPinAll}).not_pinned_blocks, 2u);
  Flood();
  EXPECT_EQ(Cached(Tokens(160)), 128u);
  EXPECT_EQ(Run(Tokens(120), {kPinAll}).pinned_blocks, 8u);  // They are pinned already.
  EXPECT_EQ(memory_.stats().pins_refused, 4u);
}

TEST_F(KvMemoryRetention, DroppedPartsAreNotPinnedAndThePinnedTextIsFoundWithoutThem) {
  const std::vector<CacheOp> drop = {{.at = 80, .begin = 16, .end = 48}};
  const RetainOutcome outcome = Close(Open(Tokens(80), drop), {kPinAll});
  EXPECT_EQ(outcome.pinned_blocks, 3u);
  for (int i = 0; i < 3; ++i) Flood();
  EXPECT_EQ(Cached(Tokens(80), drop), 80u);
  EXPECT_EQ(Cached(Tokens(80)), 16u);
  EXPECT_EQ(memory_.counts().pinned, 3u);
}

TEST_F(KvMemoryRetention, AnOperationAtTheVeryEndOfAPinnedTextIsFound) {
  const std::vector<CacheOp> drop = {{.at = 84, .begin = 16, .end = 84}};
  EXPECT_EQ(Close(Open(Tokens(84), drop), {kPinAll}).pinned_blocks, 2u);
  for (int i = 0; i < 3; ++i) Flood();
  EXPECT_EQ(Cached(Tokens(84), drop), 84u);
}

TEST_F(KvMemoryRetention, LowHoldsOnlyAsLongAsAllThatFollowsIsLow) {
  Run(Tokens(64), {{.begin = 0, .end = 32, .retention = Retention::kLow}});
  EXPECT_EQ(memory_.retention().count(Retention::kLow), 0u);
  Run(Tokens(64), {{.begin = 16, .retention = Retention::kLow}});
  EXPECT_EQ(memory_.retention().count(Retention::kLow), 3u);
  Run(Tokens(48), {{.begin = 40, .end = 41}});  // "normal" takes it back.
  EXPECT_EQ(memory_.retention().count(Retention::kLow), 1u);
  Run(Tokens(96));  // So does going on from there without a word.
  EXPECT_EQ(memory_.retention().count(Retention::kLow), 0u);
}

TEST_F(KvMemoryRetention, TheEndOfATextKeepsItsPinWhenTheTextGoesOn) {
  Run(Tokens(40), {kPinAll});
  Run(Tokens(60));  // Its third block contains the 8 tokens that were pinned.
  Flood();
  EXPECT_EQ(Cached(Tokens(60)), 48u);
  EXPECT_EQ(Run(Tokens(36), {kPinAll}).pinned_blocks, 3u);  // The beginning of a longer block.
  EXPECT_EQ(memory_.retention().count(Retention::kPinned), 3u);
}

TEST_F(KvMemoryRetention, PinsYieldFromTheEndOfTheTextUsedLongestAgo) {
  Run(Tokens(64), {kPinAll});
  Run(Tokens(64, 500), {kPinAll});
  EXPECT_EQ(memory_.YieldPins(2, now_), 2u);
  memory_.CheckInvariants();
  Flood();
  EXPECT_EQ(Cached(Tokens(64)), 32u);
  EXPECT_EQ(Cached(Tokens(64, 500)), 64u);
  EXPECT_EQ(memory_.YieldPins(100, now_), 6u);
  EXPECT_EQ(memory_.AvailableFrames(), 16u);
  EXPECT_EQ(memory_.stats().pins_yielded, 8u);
}

TEST_F(KvMemoryRetention, WhoMayNotPinKeepsHigh) {
  const RequestId id = Open(Tokens(64));
  const std::vector<RetainRange> retain = {kPinAll};
  EXPECT_EQ(memory_.End(id, {.retain = retain, .now = now_, .may_pin = false}).pinned_blocks, 0u);
  EXPECT_EQ(memory_.retention().count(Retention::kHigh), 4u);
  EXPECT_EQ(memory_.AvailableFrames(), 16u);
}

TEST_F(KvMemoryRetention, ACopyThatWasNeverMadeIsNotPublished) {
  Run(Tokens(12), {{.for_ns = 10, .forget = true}});
  const RequestId id{next_++};
  const std::vector<TokenId> longer = Tokens(20);
  EXPECT_EQ(memory_.Begin(id, 0, longer), 12u);
  Pass(10);  // The block that was to be copied is forgotten when the copier lets go of it.
  Close(id);
  EXPECT_EQ(Cached(Tokens(12)), 0u);
  EXPECT_EQ(memory_.counts().free, 16u);
}

TEST_F(KvMemoryRetention, DescribesNodesWithClassAndTime) {
  Run(Tokens(64), {{.begin = 0, .end = 32, .retention = Retention::kPinned, .for_ns = 100, .forget = true}});
  const std::vector<CachedText> texts = memory_.Describe();
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_EQ(texts[0].node.pinned, 2u);
  EXPECT_EQ(texts[0].strongest, Retention::kPinned);
  EXPECT_EQ(texts[0].until, TimeNs{1100});
  EXPECT_EQ(texts[0].forgotten_at, TimeNs{1100});
}

}  // namespace
}  // namespace kvist::kv
