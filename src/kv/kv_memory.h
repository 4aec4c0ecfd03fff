#pragma once

/// @file
/// The KV memory of one executor as the engine sees it: sequences grow, commit what was computed and end; what they
/// computed stays cached by content until its frame is wanted. Threads: engine thread only. Errors: none; running out
/// of frames is an answer (`Reserve` = false). Non-goals: bytes (FrameArena), scheduling, preemption.
///
/// After every call each frame is free, cached or referenced, and the counts add up to the pool.

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/units.h"
#include "kv/frame_pool.h"
#include "kv/prefix_index.h"
#include "kv/span_table.h"

namespace kvist::kv {

/// Blocks that `tokens` occupy.
constexpr uint32_t BlocksFor(uint64_t tokens) {
  return static_cast<uint32_t>((tokens + kBlockTokens - 1) / kBlockTokens);
}

struct KvMemoryOptions {
  uint32_t frames_count = 0;
  bool reuse = true;  ///< Keep finished blocks and match new prompts against them.
};

/// Totals since the start; tokens.
struct KvMemoryStats {
  uint64_t lookup_tokens = 0, hit_tokens = 0, forgotten_blocks = 0;
};

class KvMemory {
 public:
  explicit KvMemory(const KvMemoryOptions& options);

  /// Starts a sequence on the longest cached prefix of `tokens` that leaves at least one token to compute.
  /// @return tokens whose keys and values are already there; a multiple of kBlockTokens.
  uint32_t Begin(RequestId id, uint64_t cache_namespace, std::span<const TokenId> tokens);

  /// Makes room for `tokens_total` tokens, forgetting cached blocks (longest unused first) where needed.
  /// @return false when even that is not enough; then nothing changed.
  bool Reserve(RequestId id, uint32_t tokens_total);

  /// The executor has written keys and values of `tokens`, which follow those committed before. Full blocks are sealed,
  /// and published for reuse. REQUIRES: reserved.
  void Commit(RequestId id, std::span<const TokenId> tokens);

  /// Ends a sequence; its published blocks stay cached, the rest is free.
  void End(RequestId id);

  /// Span that holds the whole view of a sequence.
  SpanId SpanOf(RequestId id) const;
  /// Tokens committed, cached ones included.
  uint32_t CommittedTokens(RequestId id) const;
  uint32_t BlocksHeld(RequestId id) const;

  const SpanTable& spans() const { return spans_; }
  const FrameCounts& counts() const { return pool_.counts(); }
  /// Frames that a sequence could get: free or cached.
  uint32_t AvailableFrames() const { return counts().free + counts().cached; }
  uint32_t frames_count() const { return counts().total(); }
  const KvMemoryStats& stats() const { return stats_; }

  /// Recounts every reference from the sequences and aborts on a difference. O(frames); for tests.
  void CheckInvariants() const;

 private:
  struct Sequence {
    SpanId span;
    uint32_t committed = 0;            ///< Tokens.
    ContentId chain;                   ///< Of the last sealed block.
    std::vector<TokenId> open_tokens;  ///< Committed tokens of the block that is not full yet.
  };

  std::optional<FrameId> TakeFrame();
  void Seal(Sequence& sequence);

  KvMemoryOptions options_;
  FramePool pool_;
  SpanTable spans_;
  PrefixIndex index_;
  absl::flat_hash_map<RequestId, Sequence> sequences_;
  KvMemoryStats stats_;
};

}  // namespace kvist::kv
