#include "lab/tier_replay.h"

#include <gtest/gtest.h>

#include "base/prng.h"

namespace kvist::lab {
namespace {

/// Some texts that come back again and again, each after more than memory holds, among many that never do.
workload::Trace Mixed() {
  workload::Trace trace{.block_tokens = 64};
  uint64_t fresh = 1000000;
  for (uint32_t i = 0; i < 2000; ++i) {
    workload::TraceRequest request{.at_s = i * 1.0};
    for (uint64_t b = 0; b < 8; ++b) {
      request.block_hashes.push_back(i % 4 == 0 ? (i / 4 % 20) * 8 + b : fresh++);
    }
    trace.requests.push_back(std::move(request));
  }
  return trace;
}

TEST(TierReplay, ClairvoyanceReusesAllAndA5NearlyAllWithFewWrites) {
  const workload::Trace trace = Mixed();
  const TierReplayOptions options{.memory_blocks = 200};
  kv::AdmitAll all;
  kv::WriteThrough through;
  kv::ReuseAdmission a5;
  const TierReplayResult every = *ReplayTiers(trace, options, all);
  const TierReplayResult at_once = *ReplayTiers(trace, options, through);
  const TierReplayResult best = *ReplayClairvoyant(trace, options);
  const TierReplayResult selective = *ReplayTiers(trace, options, a5);
  EXPECT_EQ(every.asked, 16000u);
  EXPECT_EQ(every.distinct, 160u + 12000u);
  EXPECT_EQ(every.memory_hits + every.drive_hits, 4000u - 160u);
  EXPECT_EQ(at_once.drive_hits + at_once.memory_hits, every.drive_hits + every.memory_hits);
  EXPECT_EQ(at_once.written, every.distinct);
  EXPECT_EQ(best.drive_hits, every.drive_hits);
  EXPECT_EQ(best.written, 160u);
  // Each text is computed once more than with the others before it is worth writing.
  EXPECT_GE(selective.drive_hits, every.drive_hits - 160);
  EXPECT_EQ(selective.written, 160u);
}

TEST(TierReplay, ASmallDriveForgets) {
  const workload::Trace trace = Mixed();
  kv::AdmitAll all;
  const TierReplayResult large = *ReplayTiers(trace, {.memory_blocks = 200}, all);
  const TierReplayResult small = *ReplayTiers(trace, {.memory_blocks = 200, .drive_blocks = 300}, all);
  EXPECT_LT(small.drive_hits, large.drive_hits);
  EXPECT_GT(small.written, large.written);
}

TEST(TierReplay, ATraceWithoutContentsIsAnError) {
  kv::AdmitAll all;
  EXPECT_TRUE(absl::IsInvalidArgument(ReplayTiers({}, {}, all).status()));
}

}  // namespace
}  // namespace kvist::lab
