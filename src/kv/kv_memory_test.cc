#include "kv/kv_memory.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/prng.h"

namespace kvist::kv {
namespace {

std::vector<TokenId> Tokens(uint32_t count, uint32_t first = 0) {
  std::vector<TokenId> tokens;
  for (uint32_t i = 0; i < count; ++i) tokens.push_back(TokenId{first + i});
  return tokens;
}

/// Computes a whole sequence and keeps it open.
uint32_t Fill(KvMemory& memory, RequestId id, const std::vector<TokenId>& tokens, uint64_t cache_namespace = 0) {
  uint32_t cached = memory.Begin(id, cache_namespace, tokens);
  EXPECT_TRUE(memory.Reserve(id, static_cast<uint32_t>(tokens.size())));
  memory.Commit(id, std::span(tokens).subspan(cached));
  return cached;
}

TEST(KvMemory, SecondPromptReusesFullBlocksButComputesTheLastToken) {
  KvMemory memory({.frames_count = 8});
  EXPECT_EQ(Fill(memory, RequestId{1}, Tokens(40)), 0u);
  memory.End(RequestId{1});
  EXPECT_EQ(Fill(memory, RequestId{2}, Tokens(40)), 32u);
  EXPECT_EQ(Fill(memory, RequestId{3}, Tokens(32)), 16u);  // 32 would leave nothing to compute.
  memory.CheckInvariants();
}

TEST(KvMemory, NamespacesNeverShare) {
  KvMemory memory({.frames_count = 16});
  Fill(memory, RequestId{1}, Tokens(33), /*cache_namespace=*/2);
  EXPECT_EQ(Fill(memory, RequestId{2}, Tokens(33), /*cache_namespace=*/3), 0u);
  EXPECT_EQ(Fill(memory, RequestId{3}, Tokens(33), /*cache_namespace=*/2), 32u);
  memory.CheckInvariants();
}

TEST(KvMemory, SameBlockAfterAnotherHistoryIsAnotherBlock) {
  KvMemory memory({.frames_count = 16});
  std::vector<TokenId> first = Tokens(33), second = Tokens(33);
  second[0] = TokenId{99};
  Fill(memory, RequestId{1}, first);
  EXPECT_EQ(Fill(memory, RequestId{2}, second), 0u);
  memory.CheckInvariants();
}

TEST(KvMemory, TwoSequencesThatComputeTheSameKeepOneCopy) {
  KvMemory memory({.frames_count = 16});
  std::vector<TokenId> tokens = Tokens(33);
  EXPECT_EQ(memory.Begin(RequestId{1}, 0, tokens), 0u);
  EXPECT_EQ(memory.Begin(RequestId{2}, 0, tokens), 0u);
  for (uint64_t id : {1, 2}) {
    ASSERT_TRUE(memory.Reserve(RequestId{id}, 33));
    memory.Commit(RequestId{id}, tokens);
  }
  memory.CheckInvariants();
  EXPECT_EQ(memory.counts().referenced, 4u);  // Two shared full blocks, two open ones.
}

TEST(KvMemory, FullPoolRefusesAndChangesNothing) {
  KvMemory memory({.frames_count = 4});
  Fill(memory, RequestId{1}, Tokens(48));
  memory.Begin(RequestId{2}, 0, Tokens(40, 100));
  EXPECT_FALSE(memory.Reserve(RequestId{2}, 40));
  EXPECT_EQ(memory.BlocksHeld(RequestId{2}), 0u);
  memory.End(RequestId{1});
  EXPECT_TRUE(memory.Reserve(RequestId{2}, 40));
  memory.CheckInvariants();
}

TEST(KvMemory, ForgetsTheDeepestBlockOfTheOldestSequenceFirst) {
  KvMemory memory({.frames_count = 4});
  Fill(memory, RequestId{1}, Tokens(64));
  memory.End(RequestId{1});
  Fill(memory, RequestId{2}, Tokens(16, 500));  // Takes one frame: the fourth block of the first sequence.
  EXPECT_EQ(memory.stats().forgotten_blocks, 1u);
  EXPECT_EQ(memory.Begin(RequestId{3}, 0, Tokens(64)), 48u);
  memory.CheckInvariants();
}

/// Random programs against an oracle that knows which prefixes exist at all: a hit must be a prefix that was once
/// committed in that namespace, frames are accounted for after every step, and two sequences never own one unsealed
/// block.
TEST(KvMemory, RandomProgramsKeepEveryFrameAccountedFor) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Prng prng(seed);
    KvMemory memory({.frames_count = 24});
    struct Live {
      std::vector<TokenId> tokens;
      uint64_t cache_namespace;
      uint32_t committed;
    };
    std::map<uint64_t, Live> live;
    std::set<std::pair<uint64_t, std::vector<uint32_t>>> committed_prefixes;
    uint64_t next_id = 1;
    for (int step = 0; step < 400; ++step) {
      const uint64_t action = prng.Below(4);
      if (action == 0 && live.size() < 6) {
        Live entry{{}, prng.Below(2), 0};
        const uint64_t length = 1 + prng.Below(90);
        const uint64_t family = prng.Below(3);  // Few families, so that prefixes repeat.
        const uint64_t fork = prng.Below(90);
        for (uint64_t i = 0; i < length; ++i) {
          entry.tokens.push_back(TokenId{static_cast<uint32_t>(i < fork ? family : prng.Below(2) + 10)});
        }
        entry.committed = memory.Begin(RequestId{next_id}, entry.cache_namespace, entry.tokens);
        ASSERT_LT(entry.committed, entry.tokens.size());
        for (uint32_t end = kBlockTokens; end <= entry.committed; end += kBlockTokens) {
          std::vector<uint32_t> prefix;
          for (uint32_t i = 0; i < end; ++i) prefix.push_back(entry.tokens[i].value);
          ASSERT_TRUE(committed_prefixes.contains({entry.cache_namespace, prefix}));
        }
        live.emplace(next_id++, std::move(entry));
      } else if (action == 3 && !live.empty()) {
        auto it = std::next(live.begin(), static_cast<std::ptrdiff_t>(prng.Below(live.size())));
        memory.End(RequestId{it->first});
        live.erase(it);
      } else if (!live.empty()) {
        auto& [id, entry] = *std::next(live.begin(), static_cast<std::ptrdiff_t>(prng.Below(live.size())));
        const uint32_t left = static_cast<uint32_t>(entry.tokens.size()) - entry.committed;
        const uint32_t count = left == 0 ? 0 : 1 + static_cast<uint32_t>(prng.Below(left));
        if (count > 0 && memory.Reserve(RequestId{id}, entry.committed + count)) {
          memory.Commit(RequestId{id}, std::span(entry.tokens).subspan(entry.committed, count));
          entry.committed += count;
          for (uint32_t end = kBlockTokens; end <= entry.committed; end += kBlockTokens) {
            std::vector<uint32_t> prefix;
            for (uint32_t i = 0; i < end; ++i) prefix.push_back(entry.tokens[i].value);
            committed_prefixes.insert({entry.cache_namespace, prefix});
          }
        }
      }
      memory.CheckInvariants();
    }
    for (const auto& [id, entry] : live) memory.End(RequestId{id});
    memory.CheckInvariants();
    EXPECT_EQ(memory.counts().referenced, 0u);
  }
}

}  // namespace
}  // namespace kvist::kv
