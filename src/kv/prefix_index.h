#pragma once

/// @file
/// Finds the frame of a block by its content: the namespace, the tokens before it and its own tokens. A match is exact:
/// the 128-bit chain hash only finds the candidate, then its tokens and its parent frame are compared. Threads: engine
/// thread only. Non-goals: reference counts, eviction order.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/units.h"
#include "kv/page_layout.h"

namespace kvist::kv {

/// Identifies a block's content together with everything before it.
struct ContentId {
  uint64_t low = 0, high = 0;
  friend bool operator==(const ContentId&, const ContentId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ContentId& id) {
    return H::combine(std::move(h), id.low, id.high);
  }
};

/// Start of a chain: blocks of different namespaces (tenant salt, model) never match.
ContentId ChainRoot(uint64_t cache_namespace);
/// REQUIRES: tokens.size() == kBlockTokens.
ContentId ChainNext(const ContentId& parent, std::span<const TokenId> tokens);

class PrefixIndex {
 public:
  explicit PrefixIndex(uint32_t frames_count) : frames_(frames_count) {}

  /// The frame whose block has content `id`, or nullopt. `parent` is the frame matched before it; nullopt for the first
  /// block.
  std::optional<FrameId> Find(const ContentId& id, std::optional<FrameId> parent,
                              std::span<const TokenId> tokens) const;

  /// REQUIRES: Find(id, ...) is nullopt and `frame` is not in the index. A hash collision leaves the frame out.
  void Insert(const ContentId& id, std::optional<FrameId> parent, std::span<const TokenId> tokens, FrameId frame);

  bool Contains(FrameId frame) const { return frames_[frame.value].present; }
  void Remove(FrameId frame);
  size_t size() const { return by_content_.size(); }

 private:
  struct Entry {
    bool present = false;
    ContentId id;
    std::optional<FrameId> parent;
    std::array<TokenId, kBlockTokens> tokens;
  };
  std::vector<Entry> frames_;  ///< [frames_count]
  absl::flat_hash_map<ContentId, FrameId> by_content_;
};

}  // namespace kvist::kv
