// Whose blocks take how much of the tiers, over time: what owners are told adds up to what lies there, owner by owner,
// whatever is stored, given up, forgotten, purged, and through restarts.

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "base/prng.h"
#include "kv/tier/block_store_testutil.h"
#include "kv/tier/sim_disk.h"
#include "kv/tier/tier_stack.h"

namespace kvist::kv {
namespace {

constexpr uint64_t kFrameBytes = 8192;
constexpr uint32_t kFrames = 16;
constexpr uint32_t kOwners = 4;  // Of which 0 is nobody.

using Sums = std::map<std::pair<std::string, uint32_t>, double>;

class World {
 public:
  World() : arena_(*FrameArena::Create(kFrames, kFrameBytes)) {
    for (uint64_t number = 0; number < 400; ++number) {
      blocks_.emplace_back(number, kFrameBytes, TenantId{static_cast<uint32_t>(number % kOwners)});
    }
    Open();
  }

  void Open() {
    auto store = *BlockStore::Open(
        drive_.Open(),
        {.size_max = 96 * kFrameBytes, .segment_bytes = 12 * kFrameBytes, .free_bytes_min = 0, .id_seed = 3});
    auto drive = std::make_unique<StoredBlocks>(std::move(store), arena_, StoredBlocksOptions{.fingerprint = 7});
    stack_ = std::make_unique<TierStack>(
        *RamBlocks::Create(arena_, MakeCopyCodec(kFrameBytes), {.bytes_max = 20 * kFrameBytes}), std::move(drive),
        arena_);
  }
  /// The process ends, or is killed; the next one begins some time later.
  void Restart(bool killed) {
    for (const auto& [key, byte_ns] : Told()) before_[key] += byte_ns;
    if (killed) drive_.faults.crash_after = drive_.operations();
    if (!killed) stack_->Close([] { return true; });
    stack_.reset();
    if (killed) drive_.Crash(/*power=*/true);
    drive_.faults = {};
    Open();
    stack_->Advance(now_);
  }
  void Pass(int64_t ns) {
    for (const auto& [key, bytes] : There()) expected_[key] += bytes * static_cast<double>(ns);
    now_ = now_ + ns;
    stack_->Advance(now_);
  }
  void Store(std::span<const uint64_t> numbers, ColdPlaces to, bool wait) {
    std::vector<ColdWrite> writes;
    for (uint32_t i = 0; i < numbers.size(); ++i) {
      const TestBlock& block = blocks_[numbers[i]];
      std::memcpy(arena_.Frame(FrameId{i}), block.bytes().data(), kFrameBytes);
      writes.push_back({.id = block.id,
                        .parent = {1, 2},
                        .tenant = block.origin.tenant,
                        .tokens = block.tokens,
                        .frame = FrameId{i},
                        .to = to});
    }
    stack_->Store(writes, now_);
    if (wait) Finish();
  }
  void Finish() {
    ColdNews news;
    while (stack_->busy()) stack_->Poll(now_, news, /*wait=*/true);
    stack_->memory().CheckInvariants();
    store().CheckInvariants();
  }
  void Forget(std::span<const uint64_t> numbers) {
    std::vector<ContentId> ids;
    for (const uint64_t number : numbers) ids.push_back(blocks_[number].id);
    stack_->Forget(ids);
  }
  std::vector<uint64_t> Draw(Prng& prng, size_t most) const {
    std::vector<uint64_t> numbers;
    for (size_t left = 1 + prng.Below(most); left > 0; --left) {
      const uint64_t number = prng.Below(blocks_.size());
      if (std::ranges::find(numbers, number) == numbers.end()) numbers.push_back(number);
    }
    return numbers;
  }
  BlockStore& store() { return stack_->drive()->store(); }

  void Compare() {
    Sums told = Told();
    for (const auto& [key, byte_ns] : before_) told[key] += byte_ns;
    for (const auto& [key, byte_ns] : expected_) EXPECT_DOUBLE_EQ(told[key], byte_ns) << key.first << key.second;
    for (const auto& [key, byte_ns] : told) EXPECT_TRUE(byte_ns == 0 || expected_.contains(key));
  }

 private:
  /// From what the tiers list, not from what they count.
  Sums There() {
    Sums there;
    stack_->memory().Visit([&](const RamBlocks::Kept& kept) {
      there[{std::string(kColdMemoryTier), kept.facts.tenant.value}] += kFrameBytes;
      return true;
    });
    for (const BlockStore::Listed& block : store().List()) {
      there[{std::string(kDriveTier), block.facts.origin.tenant.value}] += kFrameBytes + kStorePage;
    }
    return there;
  }
  Sums Told() {
    Sums told;
    for (const TierHolding& holding : stack_->Holdings()) {
      told[{std::string(holding.tier), holding.owner.value}] += holding.byte_ns;
    }
    return told;
  }

  FrameArena arena_;
  SimDrive drive_{5};
  std::vector<TestBlock> blocks_;
  std::unique_ptr<TierStack> stack_;
  TimeNs now_{0};
  Sums expected_, before_;
};

TEST(TierHoldings, AddUpToWhatLiesThereOwnerByOwner) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    Prng prng(seed);
    World world;
    world.Pass(1000);
    for (int step = 0; step < 400; ++step) {
      const uint64_t what = prng.Below(40);
      if (what < 30) {
        world.Store(world.Draw(prng, 8), {.memory = prng.Below(2) == 0, .drive = prng.Below(2) == 0},
                    /*wait=*/prng.Below(4) > 0);
      } else if (what < 35) {
        world.Forget(world.Draw(prng, 20));
      } else if (what < 37) {
        world.Finish();
        ASSERT_TRUE(world.store().Purge({.tenant = TenantId{static_cast<uint32_t>(prng.Below(kOwners))}}).ok());
      } else if (what < 38) {
        world.Finish();
        world.Restart(/*killed=*/prng.Below(2) == 0);
      }
      if (prng.Below(3) > 0) world.Pass(static_cast<int64_t>(prng.Below(1 << 20)));
    }
    world.Finish();
    world.Pass(1 << 20);
    world.Compare();
  }
}

TEST(TierHoldings, WhatIsFoundOnTheDriveCountsFromTheStartOnAndAReaderCountsNothing) {
  FrameArena arena = *FrameArena::Create(4, kFrameBytes);
  SimDrive drive(6);
  std::vector<TestBlock> blocks;
  blocks.emplace_back(1, kFrameBytes, TenantId{9});
  blocks.emplace_back(2, kFrameBytes);
  ASSERT_EQ(StoreBlocks(**BlockStore::Open(drive.Open(), {.free_bytes_min = 0}), blocks), 0u);
  StoredBlocks stored(*BlockStore::Open(drive.Open(), {.free_bytes_min = 0}), arena, {});
  StoredBlocks reader(*BlockStore::Open(drive.Open(), {.read_only = true}), arena, {});
  EXPECT_EQ(reader.Figures().front().blocks, 2u);
  for (StoredBlocks* one : {&stored, &reader}) {
    one->Advance(TimeNs{5000});
    one->Advance(TimeNs{4000});  // A clock that goes back.
    one->Advance(TimeNs{5010});
  }
  EXPECT_TRUE(reader.Holdings().empty());
  std::map<uint32_t, double> byte_ns;
  for (const TierHolding& holding : stored.Holdings()) byte_ns[holding.owner.value] = holding.byte_ns;
  EXPECT_EQ(byte_ns, (std::map<uint32_t, double>{{0, 10.0 * (kFrameBytes + kStorePage)},
                                                 {9, 10.0 * (kFrameBytes + kStorePage)}}));
}

}  // namespace
}  // namespace kvist::kv
