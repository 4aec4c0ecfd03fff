#include "kv/live_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvist::kv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(LiveText, PositionsCloseUpBehindWhatIsDropped) {
  LiveText text;
  text.Advance(100);
  text.Apply({.at = 100, .begin = 20, .end = 50});
  text.Advance(10);
  EXPECT_THAT(text.ranges(), ElementsAre(LiveRange{0, 20, 0}, LiveRange{50, 100, -30}, LiveRange{100, 110, 0}));
  EXPECT_EQ(text.next_position(), 80u);
  EXPECT_EQ(text.live_tokens(), 80u);
  text.Apply({.at = 110, .begin = 10, .end = 60});  // What is gone already does not count again.
  EXPECT_THAT(text.ranges(), ElementsAre(LiveRange{0, 10, 0}, LiveRange{60, 100, -50}, LiveRange{100, 110, -20}));
  EXPECT_EQ(text.next_position(), 60u);
}

TEST(LiveText, GapsStayWhereAsked) {
  LiveText text;
  text.Advance(40);
  text.Apply({.at = 40, .begin = 0, .end = 8, .reposition = false});
  EXPECT_THAT(text.ranges(), ElementsAre(LiveRange{8, 40, 0}));
  EXPECT_EQ(text.next_position(), 40u);
  text.Advance(1);
  EXPECT_THAT(text.ranges(), ElementsAre(LiveRange{8, 41, 0}));
}

TEST(LiveText, PeakCountsTokensAndBlocksAtOnce) {
  const std::vector<CacheOp> ops = {{.at = 64, .begin = 8, .end = 40}, {.at = 128, .begin = 50, .end = 128}};
  const LiveText::Need need = LiveText::Peak(140, ops);
  EXPECT_EQ(need.tokens, 96u);  // Before the second operation.
  EXPECT_EQ(need.blocks, 7u);   // Of eight, the second is gone.
  EXPECT_EQ(LiveText::After(140, ops).LiveBlocks(), 4u);
  EXPECT_TRUE(LiveText::After(140, ops).AnyLive(32, 48));
  EXPECT_FALSE(LiveText::After(140, ops).AnyLive(16, 32));
}

TEST(LiveText, FaultsNameTheOperation) {
  EXPECT_EQ(FindFault(std::vector<CacheOp>{{.at = 5, .begin = 1, .end = 5}}), "");
  EXPECT_THAT(FindFault(std::vector<CacheOp>{{.at = 5, .begin = 1, .end = 6}}), HasSubstr("operation 0"));
  EXPECT_THAT(FindFault(std::vector<CacheOp>{{.at = 5, .begin = 1, .end = 2}, {.at = 4, .begin = 1, .end = 2}}),
              HasSubstr("operation 1"));
  EXPECT_THAT(FindFault(std::vector<CacheOp>{{.at = 5, .begin = 2, .end = 2}}), HasSubstr("operation 0"));
}

}  // namespace
}  // namespace kvist::kv
