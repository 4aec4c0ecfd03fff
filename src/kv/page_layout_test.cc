#include "kv/page_layout.h"

#include <gtest/gtest.h>

namespace kvist::kv {
namespace {

TEST(PageLayoutTest, PagesLieSideBySideAndHaveTheBytesOfTheirType) {
  struct Case {
    KvType type;
    uint32_t key_width, value_width;
    uint64_t key_bytes, value_bytes;
  };
  for (const Case& c : {Case{KvType::kF16, 64, 128, 16 * 64 * 2, 16 * 128 * 2},
                        Case{KvType::kQ8, 64, 128, 2 * 64 + 16 * 64, 64 + 16 * 128},
                        Case{KvType::kQ8, 6, 5, 64 + 128, 64 + 128}, Case{KvType::kQ8, 33, 1, 2 * 64 + 576, 64 + 64}}) {
    const PageLayout layout = PageLayout::Dense(c.type, 3, 2, c.key_width, c.value_width);
    EXPECT_EQ(layout.type(), c.type);
    EXPECT_EQ(layout.layer_bytes(), 2 * (c.key_bytes + c.value_bytes));
    EXPECT_EQ(layout.frame_bytes(), 3 * layout.layer_bytes());
    EXPECT_EQ(layout.token_bytes() * kBlockTokens, layout.frame_bytes());
    for (uint32_t layer = 0; layer < 3; ++layer) {
      for (uint32_t head = 0; head < 2; ++head) {
        EXPECT_EQ(layout.KeyOffset(layer, head), layer * layout.layer_bytes() + head * c.key_bytes);
        EXPECT_EQ(layout.ValueOffset(layer, head),
                  layer * layout.layer_bytes() + 2 * c.key_bytes + head * c.value_bytes);
      }
    }
    for (const Lane& lane : layout.lanes()) EXPECT_EQ(lane.page_bytes % 64, 0);
  }
}

TEST(PageLayoutTest, PagesAreNumberedAndARankHasThoseOfItsHeads) {
  const PageLayout whole = PageLayout::Dense(KvType::kQ8, 3, 8, 64, 32);
  const PageLayout slice = whole.Slice({2, 5});
  EXPECT_EQ(whole.pages(), 48u);
  EXPECT_EQ(slice.pages(), 18u);
  EXPECT_EQ(slice.first_head(), 2u);
  EXPECT_EQ(slice.frame_bytes() * 8, whole.frame_bytes() * 3);
  for (const PageLayout& layout : {whole, slice}) {
    uint64_t offset = 0;
    for (uint32_t page = 0; page < layout.pages(); ++page) {
      EXPECT_EQ(layout.PageOffset(page), offset);
      offset += layout.LaneOf(page).page_bytes;
    }
    EXPECT_EQ(offset, layout.frame_bytes());
    EXPECT_EQ(layout.PageOffset(layout.KeyPage(2, 1)), layout.KeyOffset(2, 1));
    EXPECT_EQ(layout.PageOffset(layout.ValuePage(2, 1)), layout.ValueOffset(2, 1));
    EXPECT_EQ(layout.LaneOf(layout.ValuePage(1, 2)).head, layout.first_head() + 2);
  }
}

TEST(KvTypeTest, NamesAreFound) {
  for (const KvType type : {KvType::kF16, KvType::kQ8}) EXPECT_EQ(FindKvType(KvTypeName(type)), type);
  EXPECT_FALSE(FindKvType("q4").has_value());
  EXPECT_FALSE(FindKvType("").has_value());
}

}  // namespace
}  // namespace kvist::kv
