#include "exec/cpu/step_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/check.h"

namespace kvist::exec {
namespace {

using testing::HasSubstr;

constexpr step::ExecutorLimits kLimits{
    .tokens_per_step_max = 64, .slices_per_step_max = 8, .vocab_size = 100, .context_tokens_max = 256};

/// Keys and values of two heads in three layers, and a span of four blocks, the last of which is open.
struct World {
  World() : arena(*kv::FrameArena::Create(16, layout.frame_bytes())), spans(KvType::kQ8), span(spans.Open()) {
    for (uint32_t block = 0; block < 4; ++block) {
      spans.Append(span, FrameId{block});
      if (block < 3) spans.Seal(span, block);
    }
    plan.segments = {{span, 0, 50}};
    plan.tokens = {{TokenId{1}}};
    plan.slices = {{.tokens_count = 1, .segments_count = 1, .tail = span, .tail_begin = 49, .commit_count = 1}};
  }

  absl::Status Build() { return batch.Build(plan, kLimits, {spans, arena, layout}); }

  /// Block 1 is split: its pages lie in the slots of frame 9, each where the page after it has its own.
  FrameId Split() {
    std::vector<kv::PageEntry> pages(layout.pages());
    for (uint32_t page = 0; page < layout.pages(); ++page) {
      const auto slot = static_cast<uint16_t>((page + layout.lanes().size()) % layout.pages());
      pages[page] = {.frame = FrameId{9}, .slot = slot, .state = kv::PageState::kSealed, .codec = KvType::kQ8};
    }
    const FrameId table = spans.AddPages(pages);
    spans.Put(span, 1, {.frame = table, .state = kv::PageState::kSplit, .codec = KvType::kQ8});
    return table;
  }

  const kv::PageLayout layout = kv::PageLayout::Dense(KvType::kQ8, 3, 2, 64, 32);
  kv::FrameArena arena;
  kv::SpanTable spans;
  SpanId span;
  step::StepPlan plan;
  StepBatch batch;
};

TEST(StepBatch, BlocksAreReadWhereTheirEntriesSay) {
  World world;
  const SpanId other = world.spans.Open();
  world.spans.Append(other, FrameId{12});
  world.spans.Redirect(world.span, 2, other, 0);
  ASSERT_TRUE(world.Build().ok());
  ASSERT_EQ(world.batch.view_blocks.size(), 4u);
  EXPECT_EQ(world.batch.view_blocks[1].frame, world.arena.Frame(FrameId{1}));
  EXPECT_EQ(world.batch.view_blocks[2].frame, world.arena.Frame(FrameId{12}));
  EXPECT_EQ(world.batch.rows[0].frame, world.arena.Frame(FrameId{3}));
  EXPECT_EQ(world.batch.rows[0].slot, 1u);
  EXPECT_TRUE(world.batch.split_pages.empty());
}

TEST(StepBatch, PagesOfASplitBlockAreReadWhereTheyLie) {
  World world;
  world.Split();
  world.plan.segments = {{world.span, 0, 20}, {world.span, 20, 30}};  // Cut inside the block: one part all the same.
  world.plan.slices[0].segments_count = 2;
  ASSERT_TRUE(world.Build().ok());
  ASSERT_EQ(world.batch.view_blocks.size(), 4u);
  ASSERT_EQ(world.batch.split_pages.size(), world.layout.pages());
  for (uint32_t layer = 0; layer < 3; ++layer) {
    for (uint32_t head = 0; head < 2; ++head) {
      const attention::HeadView view{.view = world.batch.view_blocks,
                                     .key_offset = world.layout.KeyOffset(layer, head),
                                     .value_offset = world.layout.ValueOffset(layer, head),
                                     .split = {world.batch.split_pages.data(), world.layout.pages(),
                                               world.layout.KeyPage(layer, head), world.layout.ValuePage(layer, head)}};
      const attention::ViewBlock &whole = view.view[0], &split = view.view[1];
      EXPECT_EQ(split.count, kv::kBlockTokens);
      EXPECT_EQ(view.KeysOf(whole), world.arena.Frame(FrameId{0}) + world.layout.KeyOffset(layer, head));
      EXPECT_EQ(view.KeysOf(split), world.arena.Frame(FrameId{9}) + world.layout.KeyOffset((layer + 1) % 3, head));
      EXPECT_EQ(view.ValuesOf(split), world.arena.Frame(FrameId{9}) + world.layout.ValueOffset((layer + 1) % 3, head));
    }
  }
}

TEST(StepBatch, WhatIsNotInHotMemoryIsAnErrorWithItsPlace) {
  World world;
  const FrameId table = world.Split();
  const kv::PageEntry page = world.spans.PagesOf(table)[7];  // Layer 1: keys of two heads, then values.
  world.spans.PutPage(table, 7, {.codec = KvType::kQ8});
  absl::Status status = world.Build();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("block 1 of span 0: the values of head 1 in layer 1"));
  world.spans.PutPage(table, 7, page);
  EXPECT_TRUE(world.Build().ok());

  kv::PageEntry block{.frame = FrameId{2}, .state = kv::PageState::kStoring, .codec = KvType::kQ8};
  block.backing = {.tier = 2, .offset = 1 << 20};
  world.spans.Put(world.span, 2, block);
  EXPECT_TRUE(world.Build().ok());
  block.state = kv::PageState::kLoading;
  world.spans.Put(world.span, 2, block);
  status = world.Build();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("block 2 of span 0"));
  world.plan.segments = {{world.span, 48, 2}};  // Nobody looks at it.
  EXPECT_TRUE(world.Build().ok());
  world.plan.block_copies = {{world.span, 2, world.span, 3}};
  EXPECT_EQ(world.Build().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(StepBatch, BlocksOfAnotherCodecAreNotRead) {
  World world;
  world.spans.Put(world.span, 0, {.frame = FrameId{0}, .state = kv::PageState::kSealed, .codec = KvType::kF16});
  EXPECT_EQ(world.Build().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(StepBatchDeathTest, SealedBlocksAreNotWritten) {
  World world;
  world.plan.slices[0].tail_begin = 47;
  world.plan.segments = {{world.span, 0, 48}};
  EXPECT_DEATH({ [[maybe_unused]] const bool ok = world.Build().ok(); }, "check failed");
  world.plan.slices[0].tail_begin = 49;
  world.plan.segments = {{world.span, 0, 50}};
  world.plan.block_copies = {{world.span, 0, world.span, 2}};
  EXPECT_DEATH({ [[maybe_unused]] const bool ok = world.Build().ok(); }, "check failed");
}

// A copy to places for some pages copies these; every other copy of the step goes page by page, too, as their order
// holds for equal pieces only.
TEST(StepBatch, CopiesOfPagesGoToTheirSlots) {
  World world;
  world.Split();
  const SpanId target = world.spans.Open();
  std::vector<kv::PageEntry> places(world.layout.pages());
  places[5] = {.frame = FrameId{8}, .slot = 1, .state = kv::PageState::kOpen, .codec = KvType::kQ8};
  world.spans.Append(target,
                     {.frame = world.spans.AddPages(places), .state = kv::PageState::kSplit, .codec = KvType::kQ8});
  world.plan.block_copies = {{world.span, 1, target, 0}, {world.span, 0, world.span, 3}};
  ASSERT_TRUE(world.Build().ok());
  ASSERT_EQ(world.batch.copies.size(), 1u + world.layout.pages());
  const FrameCopy& copy = world.batch.copies[0];
  EXPECT_EQ(copy.source, world.arena.Frame(FrameId{9}) + world.layout.PageOffset(9));
  EXPECT_EQ(copy.target, world.arena.Frame(FrameId{8}) + world.layout.PageOffset(1));
  EXPECT_EQ(copy.bytes, world.layout.LaneOf(5).page_bytes);
  EXPECT_EQ(world.batch.copies[4].source, world.arena.Frame(FrameId{0}) + world.layout.PageOffset(3));
}

}  // namespace
}  // namespace kvist::exec
