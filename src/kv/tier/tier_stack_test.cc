#include "kv/tier/tier_stack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kv/tier/block_store_testutil.h"
#include "kv/tier/sim_disk.h"

namespace kvist::kv {
namespace {

constexpr uint64_t kBlockBytes = 8192;
constexpr uint32_t kArenaFrames = 64;

class Stack {
 public:
  /// @param drive  null = cold memory alone
  explicit Stack(SimDrive* drive, uint32_t room = 16) : arena_(*FrameArena::Create(kArenaFrames, kBlockBytes)) {
    for (uint64_t number = 0; number < 32; ++number) blocks_.emplace_back(number, kBlockBytes);
    std::unique_ptr<StoredBlocks> stored;
    if (drive != nullptr) {
      stored = std::make_unique<StoredBlocks>(
          *BlockStore::Open(drive->Open(), {.size_max = 256 * kBlockBytes, .free_bytes_min = 0, .id_seed = 3}), arena_,
          StoredBlocksOptions{.fingerprint = 7});
    }
    stack_ = std::make_unique<TierStack>(
        *RamBlocks::Create(arena_, MakeCopyCodec(kBlockBytes), {.bytes_max = room * kBlockBytes}), std::move(stored),
        arena_);
  }
  TierStack* operator->() { return stack_.get(); }

  std::vector<ContentId> Ids(uint64_t count) const {
    std::vector<ContentId> ids;
    for (uint64_t i = 0; i < count; ++i) ids.push_back(blocks_[i].id);
    return ids;
  }
  /// Block numbers[i] lies in frame i.
  void Store(std::span<const uint64_t> numbers, ColdPlaces to) {
    std::vector<ColdWrite> writes;
    for (uint32_t i = 0; i < numbers.size(); ++i) {
      const TestBlock& block = blocks_[numbers[i]];
      std::memcpy(arena_.Frame(FrameId{i}), block.bytes().data(), kBlockBytes);
      writes.push_back({.id = block.id, .parent = {1, 2}, .tokens = block.tokens, .frame = FrameId{i}, .to = to});
    }
    const ColdTicket ticket = stack_->Store(writes, TimeNs{0});
    EXPECT_EQ(Wait().stores, std::vector<ColdTicket>{ticket});
    stack_->memory().CheckInvariants();
  }
  /// Reads the first blocks. @return which are missing; a wrong byte of others is a failure.
  std::vector<uint32_t> Load(uint32_t count) {
    std::vector<ColdRead> reads;
    for (uint32_t i = 0; i < count; ++i) {
      std::memset(arena_.Frame(FrameId{i}), 0, kBlockBytes);
      reads.push_back({.id = blocks_[i].id, .frame = FrameId{i}, .tokens = blocks_[i].tokens});
    }
    const ColdTicket ticket = stack_->Load(reads, TimeNs{0});
    const ColdNews news = Wait();
    EXPECT_EQ(news.loads.size(), 1u);
    EXPECT_EQ(news.loads.front().ticket, ticket);
    const std::vector<uint32_t>& missing = news.loads.front().missing;
    EXPECT_TRUE(std::ranges::is_sorted(missing));
    for (uint32_t i = 0; i < count; ++i) {
      const bool same = std::memcmp(arena_.Frame(FrameId{i}), blocks_[i].bytes().data(), kBlockBytes) == 0;
      EXPECT_TRUE(same || std::ranges::binary_search(missing, i)) << i;
    }
    return missing;
  }

 private:
  ColdNews Wait() {
    ColdNews news;
    while (news.loads.empty() && news.stores.empty()) stack_->Poll(TimeNs{0}, news, /*wait=*/true);
    EXPECT_FALSE(stack_->busy());
    return news;
  }

  FrameArena arena_;
  std::vector<TestBlock> blocks_;
  std::unique_ptr<TierStack> stack_;
};

const std::vector<uint64_t> kFirst = {0, 1, 5}, kSecond = {2, 3, 4, 6};

TEST(TierStack, AChainIsFoundAcrossMemoryAndDriveAndEachBlockComesFromTheHighest) {
  SimDrive drive(1);
  Stack stack(&drive);
  stack.Store(kFirst, {.memory = true});
  stack.Store(kSecond, {.drive = true});
  stack.Store(std::vector<uint64_t>{3}, {.memory = true, .drive = true});  // In both.
  const ColdRun run = stack->Lookup(stack.Ids(9));
  EXPECT_EQ(stack->Figures()[0].lookup_blocks, 0u) << "not before somebody goes on with it";
  EXPECT_EQ(run.blocks, 7u);
  EXPECT_EQ(run.memory_blocks, 4u);
  EXPECT_EQ(run.bytes, 3 * (kBlockBytes + kStorePage));
  stack->CountLookup(run);
  EXPECT_TRUE(stack.Load(7).empty());
  const std::vector<TierFigures> figures = stack->Figures();
  ASSERT_EQ(figures.size(), 2u);
  EXPECT_EQ(figures[0].name, "cold_memory");
  EXPECT_EQ(figures[0].read_blocks, 4u);
  EXPECT_EQ(figures[0].lookup_blocks, 9u);
  EXPECT_EQ(figures[0].hit_blocks, 4u);
  EXPECT_EQ(figures[1].hit_blocks, 3u);
  EXPECT_EQ(figures[1].name, "drive");
  EXPECT_EQ(figures[1].read_blocks, 3u);
}

TEST(TierStack, ALoadThatNeedsBothLastsAsLongAsTheSlowerOne) {
  SimDrive drive(2);
  Stack stack(&drive);
  const double drive_ns = stack->LoadNs({.blocks = 8, .bytes = 8 << 20});
  EXPECT_EQ(stack->LoadNs({.blocks = 9, .bytes = 8 << 20, .memory_blocks = 1}), drive_ns);
  EXPECT_LT(stack->LoadNs({.blocks = 8, .memory_blocks = 8}), drive_ns);
}

TEST(TierStack, WithoutADriveChainsEndWhereMemoryEnds) {
  Stack stack(nullptr);
  stack.Store(kFirst, {.memory = true, .drive = true});
  EXPECT_EQ(stack->Lookup(stack.Ids(9)).blocks, 2u);
  EXPECT_TRUE(stack.Load(2).empty());
  EXPECT_EQ(stack.Load(4), (std::vector<uint32_t>{2, 3}));
  EXPECT_EQ(stack->Figures().size(), 1u);
  stack->Close([] { return true; });
}

TEST(TierStack, ADriveThatFailsCostsItsBlocksAndNoOthers) {
  SimDrive drive(3);
  Stack stack(&drive);
  stack.Store(kFirst, {.memory = true});
  stack.Store(kSecond, {.drive = true});
  drive.faults.read_error = 1;
  EXPECT_EQ(stack.Load(7), (std::vector<uint32_t>{2, 3, 4, 6}));
}

TEST(TierStack, WhatMemoryAloneHasIsWrittenAtTheEndAsLongAsItMay) {
  SimDrive drive(4);
  {
    Stack stack(&drive);
    stack.Store(kSecond, {.memory = true, .drive = true});
    stack.Store(kFirst, {.memory = true});
    int asked = 0;
    stack->Close([&] { return ++asked <= 2; });
    EXPECT_EQ(asked, 3);  // Not for those that the drive has.
  }
  Stack stack(&drive);
  EXPECT_EQ(stack.Load(7), std::vector<uint32_t>{5});  // The text's beginning goes first.
}

}  // namespace
}  // namespace kvist::kv
