#include "lab/cache_replay.h"

#include <gtest/gtest.h>

#include "base/prng.h"

namespace kvist::lab {
namespace {

/// Sessions whose prompts grow by a block or two from request to request, in turn.
workload::Trace Sessions(uint32_t sessions, uint32_t turns, uint64_t seed) {
  Prng prng(seed);
  workload::Trace trace{.block_tokens = 64, .requests = {}};
  std::vector<std::vector<uint64_t>> texts(sessions);
  for (uint32_t turn = 0; turn < turns; ++turn) {
    for (uint32_t s = 0; s < sessions; ++s) {
      for (uint64_t i = 1 + prng.Below(2); i > 0; --i) texts[s].push_back(prng.Next());
      workload::TraceRequest request{.at_s = static_cast<double>(turn), .session = s, .block_hashes = texts[s]};
      request.input_tokens = static_cast<uint32_t>(texts[s].size() * 64 + 5);
      trace.requests.push_back(request);
    }
  }
  return trace;
}

TEST(CacheReplay, WithRoomForEverythingComputesWhatAnInfiniteCacheDoes) {
  const CacheReplayResult result = *ReplayCache(Sessions(4, 10, 1), {.blocks = 4096, .buckets = 64});
  EXPECT_EQ(result.computed_tokens, result.infinite_computed_tokens);
  EXPECT_EQ(result.clairvoyant_computed_tokens, result.infinite_computed_tokens);
  EXPECT_EQ(result.evicted_blocks, 0u);
  EXPECT_LT(result.computed_tokens, result.prompt_tokens / 3);
}

TEST(CacheReplay, NothingBeatsKnowingTheFuture) {
  for (uint64_t seed = 1; seed < 6; ++seed) {
    const workload::Trace trace = Sessions(6, 12, seed);
    for (const uint32_t blocks : {100u, 200u, 300u}) {
      const CacheReplayResult result = *ReplayCache(trace, {.blocks = blocks, .buckets = 1});
      EXPECT_LE(result.infinite_computed_tokens, result.clairvoyant_computed_tokens);
      EXPECT_LE(result.clairvoyant_computed_tokens, result.computed_tokens) << blocks;
      EXPECT_LE(result.computed_tokens, result.prompt_tokens);
      EXPECT_EQ(result.refused, 0u);
    }
  }
}

TEST(CacheReplay, CountsWhatDoesNotFitAndNeedsContents) {
  const CacheReplayResult result = *ReplayCache(Sessions(1, 10, 1), {.blocks = 40, .buckets = 1});
  EXPECT_GT(result.refused, 0u);
  EXPECT_EQ(result.refused + result.requests, 10u);
  EXPECT_EQ(ReplayCache({.block_tokens = 0, .requests = {}}, {.blocks = 10, .buckets = 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvist::lab
