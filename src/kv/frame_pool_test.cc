#include "kv/frame_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/prng.h"

namespace kvist::kv {
namespace {

TEST(FramePool, GivesUpTheLowestClassFirstAndInItTheOldest) {
  FramePool pool(6, 1);
  std::vector<FrameId> frames;
  for (uint64_t i = 0; i < 6; ++i) frames.push_back(*pool.Allocate(PageId{i}));
  EXPECT_FALSE(pool.Allocate(PageId{9}).has_value());
  EXPECT_FALSE(pool.TakeOldest(PageId{9}).has_value());  // All are referenced.
  pool.SetRetention(frames[1], Retention::kHigh);
  for (const FrameId frame : frames) pool.Release(frame, /*keep=*/true);
  pool.SetRetention(frames[4], Retention::kLow);
  for (const size_t expected : {4, 0, 2, 3, 5, 1}) EXPECT_EQ(pool.TakeOldest(PageId{0}), frames[expected]);
  pool.CheckInvariants();
}

TEST(FramePool, PinnedFramesAreNotGivenUpAndLoweredOnesAreTheNextOfTheirClass) {
  FramePool pool(4, 1);
  std::vector<FrameId> frames;
  for (uint64_t i = 0; i < 4; ++i) frames.push_back(*pool.Allocate(PageId{i}));
  pool.SetRetention(frames[0], Retention::kPinned);
  pool.SetRetention(frames[2], Retention::kPinned);
  EXPECT_FALSE(pool.OldestPinned().has_value());  // All are referenced.
  for (const FrameId frame : frames) pool.Release(frame, /*keep=*/true);
  EXPECT_EQ(pool.counts().pinned, 2u);
  EXPECT_EQ(pool.OldestPinned(), frames[0]);
  pool.SetRetention(frames[2], Retention::kNormal);
  for (const size_t expected : {2, 1, 3}) EXPECT_EQ(pool.TakeOldest(PageId{0}), frames[expected]);
  EXPECT_FALSE(pool.TakeOldest(PageId{0}).has_value());
  pool.CheckInvariants();
  pool.SetRetention(frames[0], Retention::kHigh);
  EXPECT_EQ(pool.TakeOldest(PageId{0}), frames[0]);
  EXPECT_EQ(pool.counts().pinned, 0u);
}

TEST(FramePool, EveryFrameIsReachedWhateverTheIdsAre) {
  FramePool pool(1000, 64);
  EXPECT_EQ(pool.buckets_count(), 8u);  // Fewer than asked for, so that none is tiny.
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(pool.Allocate(PageId{7}).has_value());
  EXPECT_FALSE(pool.Allocate(PageId{7}).has_value());
  EXPECT_EQ(pool.counts().referenced, 1000u);
}

/// Threads that take, share, keep and forget frames of one pool: no frame has two owners, none is lost.
TEST(FramePool, ThreadsShareThePool) {
  constexpr uint32_t kFrames = 512, kThreads = 4, kSteps = 20000;
  FramePool pool(kFrames, 8);
  std::vector<std::atomic<int>> owned(kFrames);
  std::atomic<bool> twice{false};
  auto work = [&](uint64_t seed) {
    Prng prng(seed);
    std::vector<FrameId> mine;
    for (uint32_t step = 0; step < kSteps; ++step) {
      if (prng.Below(2) == 0 || mine.empty()) {
        std::optional<FrameId> frame = pool.Allocate(PageId{prng.Next()});
        if (!frame) frame = pool.TakeOldest(PageId{prng.Next()});
        if (!frame) continue;
        if (owned[frame->value].fetch_add(1) != 0) twice = true;
        mine.push_back(*frame);
      } else {
        std::swap(mine[prng.Below(mine.size())], mine.back());
        const FrameId frame = mine.back();
        mine.pop_back();
        pool.Reference(frame);
        pool.SetRetention(frame, static_cast<Retention>(prng.Below(kRetentions - 1)));
        pool.Release(frame, /*keep=*/false);
        owned[frame.value].fetch_sub(1);
        pool.Release(frame, /*keep=*/prng.Below(2) == 0);
      }
    }
    for (const FrameId frame : mine) {
      owned[frame.value].fetch_sub(1);
      pool.Release(frame, /*keep=*/true);
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(twice);
  pool.CheckInvariants();
  EXPECT_EQ(pool.counts().referenced, 0u);
}

TEST(FramePool, WhatIsReadyGoesFirstAmongTheOldestOfAllBuckets) {
  FramePool pool(256, 2);
  std::vector<FrameId> frames;
  for (uint32_t i = 0; i < 256; ++i) frames.push_back(*pool.Allocate(PageId{i}));
  for (const FrameId frame : frames) pool.Release(frame, /*keep=*/true);
  const auto bucket_of = [](FrameId frame) { return frame.value & 1; };
  const FrameId next = *pool.TakeOldest(PageId{0});
  pool.Release(next, /*keep=*/true);
  // The frames of the other bucket are ready.
  const auto is_ready = [&](FrameId frame) { return bucket_of(frame) != bucket_of(next); };
  for (int i = 0; i < 128; ++i) EXPECT_NE(bucket_of(*pool.TakeOldest(PageId{0}, is_ready)), bucket_of(next)) << i;
  EXPECT_EQ(bucket_of(*pool.TakeOldest(PageId{0}, is_ready)), bucket_of(next)) << "when there is no other";
}

TEST(FramePool, WhatWasStoredIsGivenUpBeforeWhatWasNot) {
  FramePool pool(3, 1);
  std::vector<FrameId> frames;
  for (uint64_t i = 0; i < 3; ++i) frames.push_back(*pool.Allocate(PageId{i}));
  for (const FrameId frame : frames) pool.Release(frame, true);
  for (const size_t i : {0, 1}) pool.BeginStoring(frames[i]);
  EXPECT_EQ(pool.counts().storing, 2u);
  EXPECT_EQ(pool.state(frames[1]), FrameState::kStoring);
  pool.CheckInvariants();
  pool.EndTransfer(frames[1], true);
  pool.EndTransfer(frames[0], true);
  EXPECT_EQ(pool.TakeOldest(PageId{9}), frames[0]);
  EXPECT_EQ(pool.TakeOldest(PageId{9}), frames[1]);
  EXPECT_EQ(pool.TakeOldest(PageId{9}), frames[2]);
  EXPECT_EQ(pool.TakeOldest(PageId{9}), std::nullopt);
  pool.CheckInvariants();
}

TEST(FramePool, AFrameInTransferIsNobodysUntilThatIsDone) {
  FramePool pool(2, 1);
  const FrameId loading = *pool.Allocate(PageId{1}), storing = *pool.Allocate(PageId{2});
  pool.BeginLoading(loading);
  pool.BeginStoring(storing);
  EXPECT_EQ(pool.counts().loading_held, 1u);
  EXPECT_EQ(pool.state(storing), FrameState::kReferenced);
  pool.Release(loading, false);
  pool.Release(storing, false);
  EXPECT_EQ(pool.Allocate(PageId{3}), std::nullopt);
  EXPECT_EQ(pool.TakeOldest(PageId{3}), std::nullopt);
  EXPECT_EQ(pool.counts().loading + pool.counts().storing, 2u);
  pool.CheckInvariants();
  pool.EndTransfer(loading, false);
  EXPECT_EQ(pool.Allocate(PageId{3}), loading);
  pool.EndTransfer(storing, false);
  EXPECT_EQ(pool.Allocate(PageId{3}), storing);
  pool.CheckInvariants();
}

}  // namespace
}  // namespace kvist::kv
