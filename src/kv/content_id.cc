#include "kv/content_id.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "kv/page_layout.h"

namespace kvist::kv {
namespace {

static_assert(std::endian::native == std::endian::little);  // Words are hashed as they lie.

enum class Kind : uint32_t { kRoot = 1, kOp, kTokens };

/// One link of the chain: what came before, and the words that follow it.
struct Link {
  uint32_t kind, words_count;
  ContentId before;
  uint32_t words[kBlockTokens];
};

ContentId HashOf(const Link& link) {
  const size_t bytes = offsetof(Link, words) + link.words_count * sizeof(uint32_t);
  const XXH128_hash_t hash = XXH3_128bits(&link, bytes);
  return {hash.low64, hash.high64};
}

}  // namespace

ContentId RootContentId(uint64_t fingerprint, KvType codec, uint64_t cache_namespace) {
  return HashOf({.kind = static_cast<uint32_t>(Kind::kRoot),
                 .words_count = 2,
                 .before = {fingerprint, cache_namespace},
                 .words = {kContentIdVersion, static_cast<uint32_t>(codec)}});
}

ContentId NextContentId(const ContentId& before, std::span<const TokenId> tokens, std::span<const CacheOp> ops) {
  KVIST_CHECK(!tokens.empty() && tokens.size() <= kBlockTokens);
  Link link{.kind = static_cast<uint32_t>(Kind::kOp), .words_count = 4, .before = before, .words = {}};
  for (const CacheOp& op : ops) {
    const uint32_t words[] = {op.at, op.begin, op.end, op.reposition ? 1u : 0u};
    std::ranges::copy(words, link.words);
    link.before = HashOf(link);
  }
  link.kind = static_cast<uint32_t>(Kind::kTokens);
  link.words_count = static_cast<uint32_t>(tokens.size());
  std::ranges::transform(tokens, link.words, [](TokenId token) { return token.value; });
  return HashOf(link);
}

std::vector<ContentId> ContentIdsOf(const ContentId& root, std::span<const TokenId> tokens,
                                    std::span<const CacheOp> ops) {
  std::vector<ContentId> ids;
  ids.reserve(tokens.size() / kBlockTokens);
  ContentId last = root;
  auto op = ops.begin();
  for (size_t begin = 0; begin + kBlockTokens <= tokens.size(); begin += kBlockTokens) {
    const auto first = op;
    while (op != ops.end() && op->at < begin + kBlockTokens) ++op;
    ids.push_back(last = NextContentId(last, tokens.subspan(begin, kBlockTokens), {first, op}));
  }
  return ids;
}

}  // namespace kvist::kv
