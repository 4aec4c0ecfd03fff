#pragma once

/// @file
/// Names of blocks by content: a chain of 128-bit hashes (XXH3) over the model, the way its keys and values are
/// written, the namespace, and all tokens and operations up to the block's end. Equal histories have equal names in
/// every process, on disk and on the wire. Pure. Non-goals: secrecy; who may choose a namespace must not be able to
/// guess another's (serve hashes salts with SHA-256).

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"
#include "kv/live_text.h"
#include "tensor/kv_type.h"

namespace kvist::kv {

struct ContentId {
  uint64_t low = 0, high = 0;
  friend bool operator==(const ContentId&, const ContentId&) = default;
};

/// Raised when names are made in another way.
inline constexpr uint32_t kContentIdVersion = 1;

/// What the names of a namespace's first blocks go on from.
/// @param fingerprint  of the model and of what else decides the bits of its keys and values.
ContentId RootContentId(uint64_t fingerprint, KvType codec, uint64_t cache_namespace);

/// The name of the block that follows `before`.
/// @param tokens  1..kBlockTokens.
/// @param ops     with `at` in the block, in order.
ContentId NextContentId(const ContentId& before, std::span<const TokenId> tokens, std::span<const CacheOp> ops);

/// The names of a text's full blocks, in order. @param root  RootContentId @param ops  in order of `at`
std::vector<ContentId> ContentIdsOf(const ContentId& root, std::span<const TokenId> tokens,
                                    std::span<const CacheOp> ops);

}  // namespace kvist::kv
