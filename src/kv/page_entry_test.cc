#include "kv/page_entry.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>

namespace kvist::kv {
namespace {

TEST(PageEntry, SixteenBytesHoldAPlaceInMemoryAndOneBelow) {
  PageEntry entry{.frame = FrameId{0x01020304}, .slot = 0x1234, .state = PageState::kSealed, .codec = KvType::kQ8};
  entry.backing = {.tier = 2, .offset = (uint64_t{1} << 56) - 1};
  EXPECT_EQ(FindFault(entry), "");  // In both at once.
  unsigned char bytes[16];
  std::memcpy(bytes, &entry, sizeof entry);
  const unsigned char expected[16] = {4, 3, 2, 1, 0x34, 0x12, 2, 1, 2, 255, 255, 255, 255, 255, 255, 255};
  EXPECT_EQ(std::memcmp(bytes, expected, sizeof bytes), 0);
  EXPECT_EQ(std::bit_cast<PageEntry>(bytes), entry);
}

TEST(PageEntry, BlocksElsewhereNameSpanAndBlock) {
  const PageEntry entry = PageEntry::Elsewhere(SpanId{(1u << 28) - 1}, (1u << 20) - 1);
  EXPECT_EQ(entry.elsewhere_span(), SpanId{(1u << 28) - 1});
  EXPECT_EQ(entry.elsewhere_block(), (1u << 20) - 1);
  EXPECT_EQ(FindFault(entry), "");
}

TEST(PageEntry, StatesSayWhatMayBeDone) {
  const FrameId frame{7}, table{kPageTableBit | 7};
  const Backing below{.tier = 2, .offset = 4096};
  struct Case {
    PageState state;
    bool readable;
    FrameId frame, wrong;
    bool may_have_backing, needs_backing;
  };
  const Case cases[] = {{PageState::kNone, false, kNoFrame, frame, true, false},
                        {PageState::kOpen, true, frame, kNoFrame, false, false},
                        {PageState::kSealed, true, frame, table, true, false},
                        {PageState::kStoring, true, frame, kNoFrame, true, true},
                        {PageState::kLoading, false, frame, kNoFrame, true, true},
                        {PageState::kSplit, false, table, frame, false, false}};
  for (const Case& c : cases) {
    SCOPED_TRACE(static_cast<int>(c.state));
    EXPECT_EQ(IsReadable(c.state), c.readable);
    EXPECT_EQ(FindFault({.frame = c.frame, .state = c.state}).empty(), !c.needs_backing);
    EXPECT_EQ(FindFault({.frame = c.frame, .state = c.state, .backing = below}).empty(), c.may_have_backing);
    EXPECT_NE(FindFault({.frame = c.wrong, .state = c.state, .backing = c.needs_backing ? below : Backing{}}), "");
  }
}

}  // namespace
}  // namespace kvist::kv
