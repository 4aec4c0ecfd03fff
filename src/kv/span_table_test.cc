#include "kv/span_table.h"

#include <gtest/gtest.h>

namespace kvist::kv {
namespace {

TEST(SpanTable, MovingABlockChangesItForEverybodyWhoSeesIt) {
  SpanTable spans(KvType::kQ8);
  const SpanId first = spans.Open(), second = spans.Open();
  spans.Append(first, FrameId{1});
  spans.Append(second, FrameId{2});
  spans.Append(second, FrameId{3});
  EXPECT_EQ(spans.At(second, 1).codec, KvType::kQ8);
  spans.Seal(first, 0);
  spans.Redirect(second, 1, first, 0);
  EXPECT_EQ(spans.Locate(second, 1), (BlockPlace{first, 0}));
  spans.Replace(second, 1, FrameId{9});
  EXPECT_EQ(spans.FrameOf(first, 0), FrameId{9});
  EXPECT_EQ(spans.At(second, 1).state, PageState::kSealed);
  spans.Replace(first, 0, kNoFrame);
  EXPECT_EQ(spans.At(second, 1).state, PageState::kNone);
  EXPECT_EQ(spans.FrameOf(second, 0), FrameId{2});
}

TEST(SpanTable, SpansAndTablesAreUsedAgain) {
  SpanTable spans;
  const SpanId span = spans.Open();
  spans.Hold(span);
  spans.Append(span, FrameId{1});
  const FrameId table = spans.AddPages(std::vector<PageEntry>(3));
  EXPECT_TRUE(IsPageTable(table));
  spans.PutPage(table, 2, {.frame = FrameId{5}, .slot = 7, .state = PageState::kSealed});
  EXPECT_EQ(spans.PagesOf(table)[2].slot, 7);
  spans.RemovePages(table);
  spans.Release(span);
  EXPECT_EQ(spans.BlocksOf(span), 1u);  // Held by somebody else.
  spans.Release(span);
  EXPECT_EQ(spans.open_count(), 0u);
  EXPECT_EQ(spans.Open(), span);
  EXPECT_EQ(spans.BlocksOf(span), 0u);
  EXPECT_EQ(spans.AddPages(std::vector<PageEntry>(1)), table);
  EXPECT_EQ(spans.PagesOf(table)[0].state, PageState::kNone);
}

TEST(SpanTableDeathTest, ProgrammerErrorsAbort) {
  SpanTable spans;
  const SpanId span = spans.Open();
  spans.Append(span, FrameId{1});
  spans.Seal(span, 0);
  EXPECT_DEATH(spans.Seal(span, 0), "check failed");
  EXPECT_DEATH(spans.At(span, 1), "check failed");
  EXPECT_DEATH(spans.Put(span, 0, {.frame = FrameId{1}, .state = PageState::kLoading}), "check failed");
  spans.Release(span);
  EXPECT_DEATH(spans.At(span, 0), "check failed");
}

}  // namespace
}  // namespace kvist::kv
