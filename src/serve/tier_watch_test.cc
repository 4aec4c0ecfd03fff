#include "serve/tier_watch.h"

#include <gtest/gtest.h>

namespace kvist::serve {
namespace {

TEST(TierWatch, TellsEachChangeOnceWithPlaceAndReason) {
  TierWatch watch(std::map<std::string, std::string>{{"drive", "/fast/kvist"}});
  std::vector<kv::TierFigures> tiers = {{.name = "drive", .state = "writing", .reason = ""},
                                        {.name = "shelf", .state = "writing", .reason = ""}};
  EXPECT_TRUE(watch.Look(tiers).empty()) << "how it begins is told at the start";
  EXPECT_TRUE(watch.Look(tiers).empty());
  tiers[0].state = "read-only";
  tiers[0].reason = "No space left on device";
  const std::vector<TierWatch::News> full = watch.Look(tiers);
  ASSERT_EQ(full.size(), 1u);
  EXPECT_EQ(full[0].text, "KV on drive (/fast/kvist): writing before, read-only now: No space left on device");
  EXPECT_TRUE(full[0].worse);
  tiers[0].reason = "No space left on device, still";
  EXPECT_TRUE(watch.Look(tiers).empty());
  tiers[0].state = "disabled";
  tiers[1].state = "disabled";
  EXPECT_EQ(watch.Look(tiers).size(), 2u);
  tiers[1].state = "writing";
  tiers[1].reason = "";
  const std::vector<TierWatch::News> again = watch.Look(tiers);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].text, "KV on shelf: disabled before, writing now");
  EXPECT_FALSE(again[0].worse);
}

}  // namespace
}  // namespace kvist::serve
