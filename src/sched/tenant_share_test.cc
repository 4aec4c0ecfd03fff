#include "sched/tenant_share.h"

#include <gtest/gtest.h>

namespace kvist::sched {
namespace {

constexpr TenantId kA{1}, kB{2}, kC{3};

TEST(TenantShare, WhoComesStartsLevelWithTheLeastOfThoseWhoAreHere) {
  TenantShare share;
  share.Enter(kA);
  share.Charge(kA, 1000);
  share.Enter(kB);
  EXPECT_EQ(share.Received(kB), 1000u);
  share.Charge(kB, 50);
  share.Enter(kC);
  EXPECT_EQ(share.Received(kC), 1000u);  // A's.
}

TEST(TenantShare, IdlingEarnsNothing) {
  TenantShare share;
  share.Enter(kA);
  share.Enter(kB);
  share.Leave(kB);
  share.Charge(kA, 5000);
  share.Enter(kB);
  EXPECT_EQ(share.Received(kB), 5000u);
  // Nor does it when everybody was away.
  share.Charge(kB, 10);
  share.Leave(kB);
  share.Charge(kA, 700);
  share.Leave(kA);
  share.Enter(kC);
  EXPECT_EQ(share.Received(kC), 5700u);
}

TEST(TenantShare, ADebtIsKept) {
  TenantShare share;
  share.Enter(kA);
  share.Enter(kB);
  share.Charge(kA, 900);
  share.Leave(kA);
  share.Enter(kA);
  EXPECT_EQ(share.Received(kA), 900u);
  EXPECT_EQ(share.Received(kB), 0u);
  share.Enter(kB);  // Its second request: nothing changes.
  EXPECT_EQ(share.Received(kB), 0u);
}

}  // namespace
}  // namespace kvist::sched
