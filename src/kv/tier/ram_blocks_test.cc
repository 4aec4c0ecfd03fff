#include "kv/tier/ram_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/prng.h"

namespace kvist::kv {
namespace {

constexpr uint64_t kFrameBytes = 1024;
constexpr uint32_t kFrames = 64;

/// Blocks of numbers: name, tokens and bytes follow from it.
class Blocks {
 public:
  explicit Blocks(uint32_t room, uint64_t slice_bytes = uint64_t{1} << 20)
      : arena_(*FrameArena::Create(kFrames, kFrameBytes)),
        blocks_(*RamBlocks::Create(arena_, MakeCopyCodec(kFrameBytes),
                                   {.bytes_max = room * kFrameBytes, .slice_bytes = slice_bytes})) {}

  RamBlocks* operator->() { return blocks_.get(); }

  static ContentId IdOf(uint64_t number) { return {Mix64(number), Mix64(number + 1000)}; }
  static std::vector<TokenId> TokensOf(uint64_t number) {
    return std::vector(kBlockTokens, TokenId{static_cast<uint32_t>(number)});
  }
  static std::byte ByteOf(uint64_t number) { return static_cast<std::byte>(Mix64(number)); }
  std::span<std::byte> Frame(uint32_t frame) { return {arena_.Frame(FrameId{frame}), kFrameBytes}; }

  /// Numbers[i] is in frame first + i.
  ColdTicket Store(std::span<const uint64_t> numbers, uint32_t first) {
    std::vector<std::vector<TokenId>> tokens;
    for (const uint64_t number : numbers) tokens.push_back(TokensOf(number));
    std::vector<ColdWrite> writes;
    for (uint32_t i = 0; i < numbers.size(); ++i) {
      std::ranges::fill(Frame(first + i), ByteOf(numbers[i]));
      writes.push_back({.id = IdOf(numbers[i]), .tokens = tokens[i], .frame = FrameId{first + i}});
    }
    return blocks_->Store(writes);
  }
  ColdTicket Load(std::span<const uint64_t> numbers, uint32_t first, std::optional<TransferPacer> pacer = {}) {
    std::vector<std::vector<TokenId>> tokens;
    for (const uint64_t number : numbers) tokens.push_back(TokensOf(number));
    std::vector<ColdRead> reads;
    for (uint32_t i = 0; i < numbers.size(); ++i) {
      reads.push_back({.id = IdOf(numbers[i]), .frame = FrameId{first + i}, .tokens = tokens[i]});
    }
    return blocks_->Load(reads, TimeNs{0}, std::move(pacer));
  }
  ColdNews Finish() {
    ColdNews news;
    blocks_->Poll(TimeNs{0}, news, /*wait=*/true);
    blocks_->CheckInvariants();
    return news;
  }
  /// Whether each is there; a wrong byte is a failure.
  std::vector<bool> Read(std::span<const uint64_t> numbers) {
    for (uint32_t i = 0; i < numbers.size(); ++i) std::ranges::fill(Frame(i), std::byte{0});
    Load(numbers, 0);
    std::vector<bool> there(numbers.size(), true);
    const ColdNews news = Finish();
    for (const uint32_t index : news.loads.front().missing) there[index] = false;
    for (uint32_t i = 0; i < numbers.size(); ++i) {
      const auto right = [&](std::byte byte) { return byte == (there[i] ? ByteOf(numbers[i]) : std::byte{0}); };
      EXPECT_TRUE(std::ranges::all_of(Frame(i), right)) << numbers[i];
    }
    return there;
  }

 private:
  FrameArena arena_;
  std::unique_ptr<RamBlocks> blocks_;
};

TEST(RamBlocks, WhoLeftHotMemoryLongestAgoGoesAndTheEndOfATextBeforeItsBeginning) {
  Blocks blocks(4);
  blocks.Store(std::vector<uint64_t>{1, 2}, 0);
  blocks.Finish();
  blocks.Store(std::vector<uint64_t>{3, 4}, 0);
  blocks.Finish();
  EXPECT_EQ(blocks.Read(std::vector<uint64_t>{1, 2, 3, 4}), std::vector<bool>(4, true));
  blocks.Store(std::vector<uint64_t>{1}, 0);  // It leaves once more.
  blocks.Finish();
  blocks.Store(std::vector<uint64_t>{5}, 0);
  blocks.Finish();
  EXPECT_EQ(blocks.Read(std::vector<uint64_t>{1, 2, 3, 4, 5}), (std::vector<bool>{true, false, true, true, true}));
  blocks.Store(std::vector<uint64_t>{6}, 0);
  blocks.Finish();
  EXPECT_EQ(blocks.Read(std::vector<uint64_t>{1, 3, 4, 5, 6}), (std::vector<bool>{true, true, false, true, true}));
  const TierFigures figures = blocks->Figures();
  EXPECT_EQ(figures.blocks, 4u);
  EXPECT_EQ(figures.bytes, 4 * kFrameBytes);
  EXPECT_EQ(figures.evicted_blocks, 2u);
  EXPECT_EQ(figures.stored_blocks, 6u);  // The one that was there already was not copied again.
}

TEST(RamBlocks, WhatIsBeingReadIsNotGivenUpAndWhatIsBeingWrittenIsNotRead) {
  Blocks blocks(2, /*slice_bytes=*/kFrameBytes);
  blocks.Store(std::vector<uint64_t>{1, 2}, 0);
  blocks.Finish();
  blocks.Load(std::vector<uint64_t>{1, 2}, 10);
  blocks.Store(std::vector<uint64_t>{3, 4}, 20);
  EXPECT_EQ(blocks->Figures().refused_blocks, 2u);
  ColdNews news = blocks.Finish();
  EXPECT_TRUE(news.loads.front().missing.empty());
  EXPECT_EQ(blocks.Frame(11).front(), Blocks::ByteOf(2));
  blocks.Store(std::vector<uint64_t>{5}, 20);
  EXPECT_FALSE(blocks->Contains(Blocks::IdOf(5)));
  blocks.Load(std::vector<uint64_t>{5}, 30);
  EXPECT_EQ(blocks.Finish().loads.front().missing, std::vector<uint32_t>{0});
  EXPECT_TRUE(blocks->Contains(Blocks::IdOf(5)));
}

TEST(RamBlocks, OtherTokensUnderTheSameNameAreAMiss) {
  Blocks blocks(2);
  blocks.Store(std::vector<uint64_t>{1}, 0);
  blocks.Finish();
  const std::vector<TokenId> other = Blocks::TokensOf(2);
  const ColdRead read{.id = Blocks::IdOf(1), .frame = FrameId{5}, .tokens = other};
  blocks->Load({&read, 1}, TimeNs{0}, {});
  EXPECT_EQ(blocks.Finish().loads.front().missing, std::vector<uint32_t>{0});
}

TEST(RamBlocks, APollCopiesOneSliceAndReadsGoFirst) {
  Blocks blocks(8, /*slice_bytes=*/2 * kFrameBytes);
  blocks.Store(std::vector<uint64_t>{1, 2, 3}, 0);
  blocks.Finish();
  const ColdTicket store = blocks.Store(std::vector<uint64_t>{4, 5}, 10);
  const ColdTicket load = blocks.Load(std::vector<uint64_t>{1, 2, 3}, 20);
  std::vector<size_t> loads, stores;
  ColdNews news;
  for (int poll = 0; poll < 3; ++poll) {
    blocks->Poll(TimeNs{0}, news, /*wait=*/false);
    loads.push_back(news.loads.size());
    stores.push_back(news.stores.size());
  }
  EXPECT_EQ(loads, (std::vector<size_t>{0, 1, 1}));
  EXPECT_EQ(stores, (std::vector<size_t>{0, 0, 1}));
  EXPECT_EQ(news.loads.front().ticket, load);
  EXPECT_EQ(news.stores.front(), store);
  EXPECT_FALSE(blocks->busy());
}

TEST(RamBlocks, APacedReadTakesItsTimeUnlessItIsHastened) {
  Blocks blocks(16);
  const std::vector<uint64_t> numbers = {1, 2, 3, 4, 5, 6, 7, 8};
  blocks.Store(numbers, 0);
  blocks.Finish();
  // A drive that reads as much at 1 block a millisecond.
  const TransferPacer pacer(
      {.memory_bytes_per_s = 1e9, .drive_bytes_per_s = kFrameBytes * 1e3, .margin = 0, .burst_bytes = kFrameBytes},
      8 * kFrameBytes, 8 * kFrameBytes, TimeNs{0});
  const ColdTicket ticket = blocks.Load(numbers, 20, pacer);
  ColdNews news;
  std::vector<uint64_t> copied;
  for (int ms = 0; ms < 4; ++ms) {
    blocks->Poll(TimeNs{ms * 1'000'000}, news, /*wait=*/false);
    copied.push_back(blocks->Figures().read_blocks);
  }
  EXPECT_EQ(copied, (std::vector<uint64_t>{1, 2, 3, 4}));
  blocks->Hasten(ticket);
  blocks->Poll(TimeNs{3'000'000}, news, /*wait=*/false);
  EXPECT_EQ(news.loads.size(), 1u);
}

/// Random stores, loads and polls of a few blocks in little room: what is read is right, or missing, and missing only
/// what had to go.
void Program(uint64_t seed) {
  SCOPED_TRACE(seed);
  Prng prng(seed);
  const auto room = static_cast<uint32_t>(1 + prng.Below(12));
  Blocks blocks(room, kFrameBytes * prng.Below(4));
  struct Under {
    ColdTicket ticket;
    std::vector<uint64_t> numbers;
    uint32_t first;
  };
  std::vector<Under> loads, stores;
  uint64_t right = 0;
  const auto poll = [&](bool wait) {
    ColdNews news;
    blocks->Poll(TimeNs{0}, news, wait);
    for (const ColdTicket ticket : news.stores) {
      ASSERT_EQ(std::erase_if(stores, [&](const Under& under) { return under.ticket == ticket; }), 1u);
    }
    for (const ColdNews::Load& load : news.loads) {
      const auto it = std::ranges::find(loads, load.ticket, &Under::ticket);
      ASSERT_NE(it, loads.end());
      for (uint32_t i = 0; i < it->numbers.size(); ++i) {
        if (std::ranges::binary_search(load.missing, i)) continue;
        ++right;
        for (const std::byte byte : blocks.Frame(it->first + i)) ASSERT_EQ(byte, Blocks::ByteOf(it->numbers[i]));
      }
      loads.erase(it);
    }
  };
  for (int turn = 0; turn < 300; ++turn) {
    // Frames of what is under way are nobody else's.
    std::vector<uint32_t> places;
    for (uint32_t first = 0; first < kFrames; first += 8) {
      const auto taken = [&](const Under& under) { return under.first == first; };
      if (std::ranges::none_of(loads, taken) && std::ranges::none_of(stores, taken)) places.push_back(first);
    }
    std::vector<uint64_t> numbers;
    for (uint64_t left = prng.Below(5), next = prng.Below(20); left > 0; --left) numbers.push_back(next++);
    const uint64_t kind = prng.Below(4);
    if (kind < 2 && !places.empty()) {
      const uint32_t first = places[prng.Below(places.size())];
      auto& list = kind == 0 ? loads : stores;
      list.push_back({kind == 0 ? blocks.Load(numbers, first) : blocks.Store(numbers, first), numbers, first});
    } else {
      poll(prng.Below(10) == 0);
    }
    blocks->CheckInvariants();
    ASSERT_LE(blocks->Figures().blocks, room);
  }
  poll(/*wait=*/true);
  EXPECT_TRUE(loads.empty() && stores.empty() && !blocks->busy());
  if (room > 6) {
    EXPECT_GT(right, 0u);
  }
}

TEST(RamBlocks, RandomPrograms) {
  for (uint64_t seed = 1; seed <= 40; ++seed) Program(seed);
}

TEST(RamBlocks, WhatIsForgottenIsNotFoundAndItsRoomIsFreeOnceItsCopiesAreMade) {
  Blocks blocks(4, kFrameBytes);  // One block a Poll.
  blocks.Store(std::vector<uint64_t>{1, 2, 3}, 0);
  blocks.Finish();
  const std::vector<ContentId> gone = {Blocks::IdOf(1), Blocks::IdOf(3), Blocks::IdOf(9)};
  // A load that has begun still gets what it was promised.
  blocks.Load(std::vector<uint64_t>{1, 2}, 10);
  blocks->Forget(gone);
  blocks->CheckInvariants();
  EXPECT_FALSE(blocks->Contains(Blocks::IdOf(1)));
  blocks.Store(std::vector<uint64_t>{4, 5}, 0);  // There is room for both.
  const ColdNews news = blocks.Finish();
  EXPECT_TRUE(news.loads.front().missing.empty());
  EXPECT_EQ(blocks.Frame(10)[0], Blocks::ByteOf(1));
  EXPECT_EQ(blocks.Read(std::vector<uint64_t>{1, 2, 3, 4, 5}), (std::vector<bool>{false, true, false, true, true}));
  EXPECT_EQ(blocks->Figures().blocks, 3u);
  EXPECT_EQ(blocks->Figures().forgotten_blocks, 2u);
  EXPECT_EQ(blocks->Figures().evicted_blocks, 0u);
}

TEST(RamBlocks, WhatIsForgottenBeforeItWasCopiedNeverComesAndMayComeAgain) {
  Blocks blocks(4);
  blocks.Store(std::vector<uint64_t>{1, 2}, 0);
  blocks->Forget(std::vector{Blocks::IdOf(2)});
  blocks->CheckInvariants();
  blocks.Store(std::vector<uint64_t>{2}, 5);  // Somebody has read it anew.
  EXPECT_EQ(blocks.Finish().stores.size(), 2u);
  EXPECT_EQ(blocks.Read(std::vector<uint64_t>{1, 2}), (std::vector<bool>{true, true}));
  blocks.Store(std::vector<uint64_t>{3}, 0);
  blocks->Forget(std::vector{Blocks::IdOf(3)});
  blocks.Finish();
  EXPECT_EQ(blocks.Read(std::vector<uint64_t>{3}), std::vector<bool>{false});
  EXPECT_EQ(blocks->Figures().stored_blocks, 2u);
}

}  // namespace
}  // namespace kvist::kv
