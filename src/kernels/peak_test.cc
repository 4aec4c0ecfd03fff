#include "kernels/peak.h"

#include <gtest/gtest.h>

#include "kernels/dispatch.h"

namespace kvist::kernels {
namespace {

TEST(PeakTest, EveryInstructionSetButTheReferenceHasOne) {
  for (Isa isa : SupportedIsas()) {
    for (PeakKind kind : {PeakKind::kInt8, PeakKind::kBf16, PeakKind::kF32}) {
      double peak = MeasurePeakOpsPerS(isa, kind);
      if (isa == Isa::kReference) {
        EXPECT_EQ(peak, 0);
      } else {
        EXPECT_GT(peak, 1e8) << IsaName(isa);
        EXPECT_LT(peak, 1e14) << IsaName(isa);
      }
    }
  }
}

}  // namespace
}  // namespace kvist::kernels
