#include "kv/content_id.h"

#include <gtest/gtest.h>

#include <set>

#include "kv/kv_memory.h"
#include "kv/tokens_testutil.h"

namespace kvist::kv {
namespace {

struct Less {
  bool operator()(const ContentId& a, const ContentId& b) const {
    return std::pair(a.low, a.high) < std::pair(b.low, b.high);
  }
};

// What is on a disk is found by these names: they change with kContentIdVersion only.
TEST(ContentId, NamesAreTheSameInEveryProcess) {
  const ContentId root = RootContentId(0x1122334455667788, KvType::kF16, 42);
  EXPECT_EQ(root, (ContentId{0x8b47599ec0489f65, 0x42802d43be9c030f}));
  const ContentId first = NextContentId(root, Tokens(16), {});
  EXPECT_EQ(first, (ContentId{0x90867813a1efbb9f, 0x08f361050e9c55c7}));
  const CacheOp ops[] = {{.at = 17, .begin = 3, .end = 9}, {.at = 20, .begin = 1, .end = 2, .reposition = false}};
  EXPECT_EQ(NextContentId(first, Tokens(7, 500), ops), (ContentId{0x148c735a557b20d1, 0x8eff845af3fc21c2}));
}

TEST(ContentId, EveryPartOfAHistoryMakesAnotherName) {
  std::set<ContentId, Less> seen;
  size_t made = 0;
  const auto add = [&](const ContentId& id) {
    seen.insert(id);
    ++made;
  };
  const std::vector<TokenId> tokens = Tokens(16);
  for (uint32_t bit = 0; bit < 64; ++bit) {
    add(RootContentId(uint64_t{1} << bit, KvType::kF16, 7));
    add(RootContentId(7, KvType::kF16, uint64_t{1} << bit));
  }
  add(RootContentId(7, KvType::kF16, 7));
  add(RootContentId(7, KvType::kQ8, 7));
  const ContentId root = RootContentId(7, KvType::kF16, 7);
  for (uint32_t count = 1; count <= 16; ++count) add(NextContentId(root, std::span(tokens).first(count), {}));
  for (uint32_t i = 0; i < 16; ++i) {
    std::vector<TokenId> other = tokens;
    other[i].value ^= 1;
    add(NextContentId(root, other, {}));
  }
  const CacheOp op{.at = 8, .begin = 2, .end = 5}, later{.at = 9, .begin = 2, .end = 5},
      longer{.at = 8, .begin = 2, .end = 6}, wider{.at = 8, .begin = 1, .end = 5},
      still{.at = 8, .begin = 2, .end = 5, .reposition = false};
  for (const CacheOp& one : {op, later, longer, wider, still}) add(NextContentId(root, tokens, {&one, 1}));
  const CacheOp both[] = {op, later}, twice[] = {op, op};
  add(NextContentId(root, tokens, both));
  add(NextContentId(root, tokens, twice));
  EXPECT_EQ(seen.size(), made);
}

/// The names of the first blocks of a text, as the memory has them.
std::vector<ContentId> NamesOf(KvMemory& memory, uint64_t id, uint64_t cache_namespace,
                               const std::vector<TokenId>& tokens, uint32_t chunk, std::span<const CacheOp> ops = {}) {
  const RequestId request{id};
  uint32_t done = memory.Begin(request, cache_namespace, tokens, ops);
  while (done < tokens.size()) {
    const uint32_t count =
        std::min({chunk, static_cast<uint32_t>(tokens.size()) - done, memory.TokensUntilOp(request)});
    EXPECT_TRUE(memory.Reserve(request, done + count));
    memory.Commit(request, std::span(tokens).subspan(done, count));
    done += count;
  }
  std::vector<Segment> view;
  memory.AppendView(request, 0, view);
  std::vector<ContentId> names;
  for (const Segment& segment : view) {
    for (uint32_t t = 0; t + kBlockTokens <= segment.tokens_count; t += kBlockTokens) {
      const std::optional<ContentId> name = memory.ContentIdOf(segment.span, (segment.token_begin + t) / kBlockTokens);
      if (name) names.push_back(*name);
    }
  }
  memory.End(request);
  return names;
}

TEST(ContentId, DoNotDependOnHowATextCameIntoMemory) {
  KvMemory memory({.frames_count = 64, .fingerprint = 5}), other({.frames_count = 300, .fingerprint = 5, .buckets = 1});
  const std::vector<TokenId> tokens = Tokens(100);
  std::vector<TokenId> fork = tokens;
  fork[40] = TokenId{7};
  const std::vector<ContentId> names = NamesOf(memory, 1, 3, tokens, 1000);
  ASSERT_EQ(names.size(), 6u);
  const std::vector<ContentId> forked = NamesOf(memory, 2, 3, fork, 7);  // Cuts an edge of the tree.
  EXPECT_EQ(NamesOf(memory, 3, 3, tokens, 1), names);
  EXPECT_EQ(NamesOf(other, 1, 3, fork, 5), forked);
  EXPECT_EQ(NamesOf(other, 2, 3, tokens, 50), names);
  for (uint32_t b = 0; b < 6; ++b) EXPECT_EQ(names[b] == forked[b], b < 2) << b;
  const std::vector<ContentId> salted = NamesOf(memory, 4, 2, tokens, 1000);  // One bit of the namespace.
  for (uint32_t b = 0; b < 6; ++b) EXPECT_FALSE(names[b] == salted[b]) << b;
  // The operation is part of what comes after it, not before.
  const CacheOp op{.at = 64, .begin = 0, .end = 16};
  const std::vector<ContentId> dropped = NamesOf(memory, 5, 3, tokens, 1000, {&op, 1});
  ASSERT_EQ(dropped.size(), 5u);  // The first is not in view.
  for (uint32_t b = 1; b < 6; ++b) EXPECT_EQ(names[b] == dropped[b - 1], b < 4) << b;
}

}  // namespace
}  // namespace kvist::kv
