#include "kv/prefix_index.h"

#include <xxhash.h>

#include <algorithm>

#include "base/check.h"

namespace kvist::kv {
namespace {

ContentId FromHash(XXH128_hash_t hash) {
  return {hash.low64, hash.high64};
}

}  // namespace

ContentId ChainRoot(uint64_t cache_namespace) {
  return FromHash(XXH3_128bits(&cache_namespace, sizeof(cache_namespace)));
}

ContentId ChainNext(const ContentId& parent, std::span<const TokenId> tokens) {
  KVIST_CHECK(tokens.size() == kBlockTokens);
  struct {
    ContentId parent;
    std::array<TokenId, kBlockTokens> tokens;
  } input;
  static_assert(sizeof(input) == sizeof(ContentId) + kBlockTokens * sizeof(TokenId));
  input.parent = parent;
  std::copy(tokens.begin(), tokens.end(), input.tokens.begin());
  return FromHash(XXH3_128bits(&input, sizeof(input)));
}

std::optional<FrameId> PrefixIndex::Find(const ContentId& id, std::optional<FrameId> parent,
                                         std::span<const TokenId> tokens) const {
  auto it = by_content_.find(id);
  if (it == by_content_.end()) return std::nullopt;
  const Entry& entry = frames_[it->second.value];
  if (entry.parent != parent || !std::ranges::equal(entry.tokens, tokens)) return std::nullopt;
  return it->second;
}

void PrefixIndex::Insert(const ContentId& id, std::optional<FrameId> parent, std::span<const TokenId> tokens,
                         FrameId frame) {
  Entry& entry = frames_[frame.value];
  KVIST_CHECK(!entry.present && tokens.size() == kBlockTokens);
  if (!by_content_.try_emplace(id, frame).second) return;
  entry = {.present = true, .id = id, .parent = parent, .tokens = {}};
  std::copy(tokens.begin(), tokens.end(), entry.tokens.begin());
}

void PrefixIndex::Remove(FrameId frame) {
  Entry& entry = frames_[frame.value];
  KVIST_CHECK(entry.present);
  by_content_.erase(entry.id);
  entry.present = false;
}

}  // namespace kvist::kv
