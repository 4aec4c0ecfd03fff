#include "kv/retention.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/prng.h"
#include "kv/page_layout.h"

namespace kvist::kv {
namespace {

/// What the header promises, block by block and range by range.
BlockWish Expected(const std::vector<RetainRange>& ranges, uint32_t block, uint32_t tokens, bool dropped) {
  BlockWish wish;
  const uint32_t begin = block * kBlockTokens, end = std::min(begin + kBlockTokens, tokens);
  for (const RetainRange& range : ranges) {
    const uint32_t last = std::min(range.end, tokens);
    if (range.begin >= last) continue;
    if (last > begin) {  // The block itself, or one before it.
      const bool needed = !dropped || last <= begin + kBlockTokens;
      if (needed && range.retention == Retention::kPinned) wish.pinned_ns = std::max(wish.pinned_ns, range.for_ns);
      if (needed && range.retention == Retention::kHigh) wish.high_ns = std::max(wish.high_ns, range.for_ns);
      if (range.retention != Retention::kLow) wish.not_low = true;
    }
    if (range.begin < end && last > begin &&
        std::pair(range.for_ns, range.forget) > std::pair(wish.end_ns, wish.forget)) {
      wish.end_ns = range.for_ns;
      wish.forget = range.forget;
    }
    if (range.retention == Retention::kLow && range.begin <= begin && last >= end) {
      wish.low_ns = std::max(wish.low_ns, range.for_ns);
    }
  }
  if (wish.not_low) wish.low_ns = BlockWish::kNone;
  return wish;
}

TEST(Retention, WishesPerBlockAreThoseOfTheRanges) {
  Prng prng(1);
  for (int round = 0; round < 3000; ++round) {
    const auto tokens = static_cast<uint32_t>(1 + prng.Below(150));
    std::vector<RetainRange> ranges(prng.Below(7));
    for (RetainRange& range : ranges) {
      range.begin = static_cast<uint32_t>(prng.Below(170));
      if (prng.Below(3) > 0) range.end = range.begin + 1 + static_cast<uint32_t>(prng.Below(100));
      range.retention = static_cast<Retention>(prng.Below(kRetentions));
      range.for_ns = static_cast<int64_t>(prng.Below(5));
      range.forget = prng.Below(2) == 0;
    }
    const uint32_t blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
    LiveText live;
    live.Advance(tokens);
    const auto drop = static_cast<uint32_t>(prng.Below(tokens));
    if (prng.Below(2) == 0) live.Apply({.at = tokens, .begin = drop / 3, .end = drop + 1});
    const std::vector<BlockWish> wishes = WishesPerBlock(ranges, live);
    ASSERT_EQ(wishes.size(), blocks);
    for (uint32_t block = 0; block < wishes.size(); ++block) {
      const BlockWish expected =
          Expected(ranges, block, tokens, !live.AnyLive(block * kBlockTokens, (block + 1) * kBlockTokens));
      ASSERT_EQ(wishes[block].pinned_ns, expected.pinned_ns) << round << " block " << block;
      ASSERT_EQ(wishes[block].high_ns, expected.high_ns) << round << " block " << block;
      ASSERT_EQ(wishes[block].low_ns, expected.low_ns) << round << " block " << block;
      ASSERT_EQ(wishes[block].not_low, expected.not_low) << round << " block " << block;
      ASSERT_EQ(wishes[block].end_ns, expected.end_ns) << round << " block " << block;
      ASSERT_EQ(wishes[block].forget, expected.forget) << round << " block " << block;
    }
  }
}

TEST(Retention, FaultsNameTheRange) {
  const RetainRange good{.begin = 3, .end = 7, .retention = Retention::kHigh, .for_ns = 5, .forget = true};
  EXPECT_EQ(FindFault(std::vector{good, RetainRange{}}, 7), "");
  auto fault_of = [&](RetainRange bad) { return FindFault(std::vector{good, bad}, 7); };
  EXPECT_NE(fault_of({.begin = 5, .end = 5}).find("range 1"), std::string::npos);
  EXPECT_NE(fault_of({.begin = 6, .end = 2}), "");
  EXPECT_NE(fault_of({.begin = 0, .end = 8}).find("7 tokens"), std::string::npos);
  EXPECT_NE(fault_of({.for_ns = -1}), "");
  EXPECT_NE(fault_of({.forget = true}), "");  // When?
}

constexpr FrameId kFrame{4}, kOther{5};

Retention SettledClass(RetentionBook& book, int64_t now) {
  std::vector<FrameId> due;
  book.TakeDue(TimeNs{now}, due);
  for (const FrameId frame : due) book.Settle(frame, TimeNs{now});
  book.CheckInvariants();
  return book.ClassOf(kFrame);
}

TEST(RetentionBook, TheStrongestWishHoldsUntilItEnds) {
  RetentionBook book(10);
  book.Raise(kFrame, Retention::kPinned, TimeNs{10});
  book.Raise(kFrame, Retention::kHigh, TimeNs{20});
  book.Raise(kFrame, Retention::kHigh, TimeNs{15});  // Shorter than what is wished already.
  book.SetLow(kFrame, TimeNs{30});
  EXPECT_EQ(book.Settle(kFrame, TimeNs{0}).retention, Retention::kPinned);
  EXPECT_EQ(book.next(), TimeNs{10});
  for (const auto& [now, expected] : std::vector<std::pair<int64_t, Retention>>{{9, Retention::kPinned},
                                                                                {10, Retention::kHigh},
                                                                                {19, Retention::kHigh},
                                                                                {20, Retention::kLow},
                                                                                {30, Retention::kNormal}}) {
    EXPECT_EQ(SettledClass(book, now), expected) << now;
  }
  EXPECT_TRUE(book.empty());
  EXPECT_EQ(book.next(), kTimeNever);
}

TEST(RetentionBook, WhoseTimeEndsLastSaysWhatThenHappens) {
  for (const bool last_forgets : {false, true}) {
    RetentionBook book(10);
    book.SetEnd(kFrame, TimeNs{50}, last_forgets);
    book.SetEnd(kFrame, TimeNs{20}, !last_forgets);
    book.Raise(kFrame, Retention::kHigh, TimeNs{70});  // Somebody else's: nothing is forgotten before.
    book.Settle(kFrame, TimeNs{0});
    EXPECT_EQ(book.ForgottenAt(kFrame), last_forgets ? TimeNs{70} : kTimeNever);
    for (const int64_t now : {20, 50, 69}) {
      SettledClass(book, now);
      EXPECT_FALSE(book.IsDoomed(kFrame)) << now;
    }
    SettledClass(book, 70);
    EXPECT_EQ(book.IsDoomed(kFrame), last_forgets);
    EXPECT_EQ(book.empty(), !last_forgets);
  }
}

TEST(RetentionBook, ErasedAndMovedFramesTakeTheirTimesAlong) {
  RetentionBook book(1);
  book.Raise(kFrame, Retention::kPinned, TimeNs{10});
  book.SetEnd(kFrame, TimeNs{10}, /*forget=*/true);
  book.Settle(kFrame, TimeNs{0});
  EXPECT_FALSE(book.pins_left());
  book.Move(kFrame, kOther);
  EXPECT_EQ(book.ClassOf(kFrame), Retention::kNormal);
  EXPECT_EQ(book.ClassOf(kOther), Retention::kPinned);
  EXPECT_EQ(book.count(Retention::kPinned), 1u);
  book.CheckInvariants();
  std::vector<FrameId> due;
  book.TakeDue(TimeNs{10}, due);
  EXPECT_EQ(due, std::vector{kOther});
  EXPECT_TRUE(book.Settle(kOther, TimeNs{10}).doomed);
  book.Erase(kOther);
  EXPECT_TRUE(book.empty() && book.pins_left());
}

TEST(RetentionBook, TimesThatAreReplacedOverAndOverTakeNoMemory) {
  RetentionBook book(10);
  for (int64_t i = 0; i < 10000; ++i) {
    book.Erase(kFrame);
    book.Raise(kFrame, Retention::kHigh, TimeNs{20000 - i});
    book.Settle(kFrame, TimeNs{0});
  }
  book.CheckInvariants();
  std::vector<FrameId> due;
  book.TakeDue(TimeNs{30000}, due);
  EXPECT_EQ(due.size(), 1u);
}

}  // namespace
}  // namespace kvist::kv
