#pragma once

/// @file
/// The KV memory of one executor as the engine sees it: sequences begin on what is cached, grow, commit what was
/// computed, drop parts of their view and end; what they computed stays cached by content until its frame is wanted.
/// Threads: engine thread only. Errors: none; running out of frames is an answer (`Reserve` = false). Non-goals: bytes
/// (FrameArena), scheduling, preemption.
///
/// After every call each frame is free, cached, referenced, loading or storing, and the counts add up to the pool. A
/// sequence references the frames of its view, and those that it has reserved. A block that was split has no frame of
/// its own: the frames in which split blocks have pages are referenced once each.

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/units.h"
#include "kv/block_uses.h"
#include "kv/frame_pool.h"
#include "kv/hold_ledger.h"
#include "kv/live_text.h"
#include "kv/prefix_tree.h"
#include "kv/retention.h"
#include "kv/span_table.h"
#include "kv/split_blocks.h"
#include "kv/view.h"

namespace kvist::kv {

/// Blocks that `tokens` occupy.
constexpr uint32_t BlocksFor(uint64_t tokens) {
  return static_cast<uint32_t>((tokens + kBlockTokens - 1) / kBlockTokens);
}

/// Logical address of a page (DESIGN section 4): span:28 | layer:8 | lane:8 | block:20.
constexpr PageId MakePageId(SpanId span, uint32_t layer, uint32_t lane, uint32_t block) {
  return PageId{uint64_t{span.value} << 36 | uint64_t{layer} << 28 | uint64_t{lane} << 20 | block};
}

struct KvMemoryOptions {
  uint32_t frames_count = 0;
  std::optional<PageLayout> layout;  ///< Of the blocks; without it none can be split.
  uint64_t fingerprint = 0;          ///< Of the model and what else decides the bits of its keys and values.
  bool reuse = true;                 ///< Keep finished blocks and match new prompts against them.
  uint32_t buckets = FramePool::kDefaultBuckets;
  double pin_share = 0.5;  ///< Of the frames; so many can be pinned at once.
  /// Blocks that have left memory and whose uses are remembered (block_uses.h); 0 = uses are not counted.
  uint32_t uses_remembered = 0;
};

/// Totals since the start.
struct KvMemoryStats {
  uint64_t lookup_tokens = 0, hit_tokens = 0, evicted_blocks = 0;
  uint64_t copied_blocks = 0;     ///< On write.
  uint64_t dropped_tokens = 0;    ///< By operations.
  uint64_t forgotten_blocks = 0;  ///< Their time was over.
  uint64_t pins_refused = 0;      ///< Blocks that were kept as "high" because too many were pinned.
  uint64_t pins_yielded = 0;      ///< Blocks whose pin gave way to a request that nothing else had room for.
  uint64_t undecided_blocks = 0;  ///< Full blocks given up before it was decided whether a lower tier keeps them.
};

/// What there is at one moment, and what has been.
struct MemoryFigures {
  FrameCounts frames;
  KvMemoryStats totals;
  uint64_t empty_slots = 0;  ///< Tokens that fit the frames of sequences under way and are not there (yet).
  /// Slots of blocks in view of these whose tokens were dropped: what compaction could give back (decision 0020).
  uint64_t dropped_slots = 0;
  uint32_t low = 0, high = 0, pinned = 0;  ///< Blocks of these retention classes.
  uint32_t pins_max = 0;
};

/// What is to become of the blocks of a sequence that ends.
struct Farewell {
  std::span<const RetainRange> retain;  ///< FindFault(retain) is "".
  TimeNs now{0};
  bool may_pin = true;                   ///< Else "high" in place of pins: the frames are wanted now.
  TenantId owner{};                      ///< Of the pins,
  uint32_t owner_pins_max = UINT32_MAX;  ///< and how many it may have; those that are too many are "high".
};

/// What became of the pins, and what the sequence held.
struct RetainOutcome {
  uint32_t pinned_blocks = 0, not_pinned_blocks = 0;
  double held_block_ns = 0;  ///< Its part of blocks times the time it had them (hold_ledger.h).
};

/// The beginning of a text that is cached.
struct CachedPart {
  uint32_t tokens = 0;
  uint32_t blocks_shared = 0;  ///< Of these held by sequences: who begins on them takes no frame that is available.
};

/// A node of the tree, as people see it.
struct CachedText {
  PrefixTree::NodeView node;
  Retention strongest = Retention::kNormal;  ///< Of its blocks.
  TimeNs until = kTimeNever;                 ///< The last of them are of that class until then.
  TimeNs forgotten_at = kTimeNever;          ///< The first of them.
};

/// What a sequence found when it began: consecutive tokens that one earlier sequence had computed, or that came back
/// from a lower tier.
struct ReusedPart {
  uint32_t tokens = 0;  ///< Dropped ones included.
  bool copied = false;  ///< The beginning of a block, copied; else whole blocks, shared.
  uint32_t node = 0;    ///< Of the tree, at that time; 0 = a block that was being filled.
  BlockSource source = BlockSource::kComputed;
  RequestId computed_by{};  ///< [kComputed]
  /// When that sequence ended; kTimeNever = it was running. From a tier: when it had been read.
  TimeNs computed_at = kTimeNever;
};

class KvMemory {
 public:
  explicit KvMemory(const KvMemoryOptions& options);

  /// Starts a sequence on the longest cached beginning of a text that leaves at least one token to compute.
  /// @param ops  operations on the text, those to come included (FindFault(ops) is ""); each is applied when the
  ///             sequence has as many tokens as it says.
  /// @param like  a sequence of the same namespace that may have computed more of this text than is cached: the block
  ///              that it is filling is copied from. Unknown ids are nobody.
  /// @param reuse_max  tokens that may be taken from what is cached, for who wants results of the others
  /// @return tokens whose keys and values are already there, dropped ones included.
  uint32_t Begin(RequestId id, uint64_t cache_namespace, std::span<const TokenId> tokens,
                 std::span<const CacheOp> ops = {}, RequestId like = {}, uint32_t reuse_max = UINT32_MAX);

  /// Where that came from, in order of the text. To be asked right after Begin.
  std::vector<ReusedPart> ReusedParts(RequestId id) const;

  /// Makes room for `tokens_total` tokens of the text, forgetting cached blocks (longest unused first) where needed.
  /// @return false when even that is not enough; then nothing changed.
  bool Reserve(RequestId id, uint32_t tokens_total);

  /// The executor has written keys and values of `tokens`, which follow those committed before. Full blocks are sealed,
  /// and published for reuse; operations that are due now are applied. REQUIRES: reserved; tokens.size() is at most
  /// TokensUntilOp.
  void Commit(RequestId id, std::span<const TokenId> tokens);

  /// An operation of now: op.at == CommittedTokens. REQUIRES: no step that reads the view is under way.
  void Drop(RequestId id, const CacheOp& op);

  /// Ends a sequence; its published blocks stay cached, as long as is wished, the rest is free.
  RetainOutcome End(RequestId id, const Farewell& farewell = {});

  /// Time goes on for what is held. Between two calls everything counts as done at the first.
  void Advance(TimeNs now) { holds_.Advance(now, pool_.counts()); }
  /// What a sequence has held so far, in block-nanoseconds. O(blocks).
  double HeldBlockNs(RequestId id) const;
  const HeldTotals& held() const { return holds_.totals(); }

  /// Ends what is over by `now`: classes of cached blocks, and blocks that were to be forgotten.
  void Expire(TimeNs now);
  /// When Expire has something to do next, or earlier; kTimeNever = never.
  TimeNs NextExpiry() const { return book_.next(); }

  /// Blocks that this tenant has pinned.
  uint32_t PinnedBlocks(TenantId owner) const { return book_.pins_of(owner); }

  /// For a request that could not run even if nothing else did: the pins of up to so many cached blocks become "high",
  /// of those released longest ago, from the ends of their texts. @return how many
  uint32_t YieldPins(uint32_t blocks, TimeNs now);

  /// Appends the view of a sequence with `new_tokens` more tokens, which are reserved. In order of the text.
  void AppendView(RequestId id, uint32_t new_tokens, std::vector<Segment>& out) const;
  /// The span that receives new keys and values, and the index in it of the next token.
  SpanId SpanOf(RequestId id) const { return SequenceOf(id).tail; }
  uint32_t TailTokens(RequestId id) const;
  /// Rotary position of the next token.
  uint32_t NextPosition(RequestId id) const { return SequenceOf(id).live.next_position(); }
  /// The block to be copied before the next step of the sequence. Asked once.
  std::optional<BlockCopy> TakeCopy(RequestId id);

  /// Splits a block of somebody's view: its pages may be taken away and moved one by one from now on. They stay where
  /// they are. When nobody references the block any more it is forgotten, not cached.
  /// @return false when it cannot be: no layout, not sealed, nobody references it, or it is wished to stay.
  bool SplitBlock(SpanId span, uint32_t block);
  /// Takes pages of a split block (PageLayout's numbers) out of memory. Whoever attends to them gets an error.
  void DropPages(SpanId span, uint32_t block, std::span<const uint32_t> pages);
  /// Places for pages of a split block (all present) elsewhere, beside each other where possible. The copy goes into a
  /// step's plan; once that step is done, FinishMove. @return nullopt when there are no frames.
  std::optional<BlockCopy> MovePages(SpanId span, uint32_t block, std::span<const uint32_t> pages);
  /// A frame for a split block, all of whose pages are present, as a whole; as MovePages.
  std::optional<BlockCopy> MergeBlock(SpanId span, uint32_t block);
  /// The bytes were copied: from now on they are read from there. REQUIRES: no step is under way.
  void FinishMove(const BlockCopy& copy);

  /// The name of a cached block by content; nothing for one that is not in the tree.
  std::optional<ContentId> ContentIdOf(SpanId span, uint32_t block) const {
    return tree_.ContentIdOf(spans_.FrameOf(span, block));
  }

  /// Tokens committed, cached and dropped ones included.
  uint32_t CommittedTokens(RequestId id) const { return SequenceOf(id).live.tokens(); }
  uint32_t LiveTokens(RequestId id) const { return SequenceOf(id).live.live_tokens(); }
  const LiveText& Live(RequestId id) const { return SequenceOf(id).live; }
  /// Tokens that may be computed before the view changes.
  uint32_t TokensUntilOp(RequestId id) const;
  /// Blocks of the text that have their frames, or need none any more.
  uint32_t BlocksHeld(RequestId id) const;
  /// Frames that this sequence alone holds, as far as is known without counting: those it has written itself.
  uint32_t BlocksOwn(RequestId id) const;

  // Lower tiers (kv_memory_tier.cc). Blocks come from there as the work of a sequence that nobody computes.

  /// What Begin would find cached now, in whole blocks. O(tokens).
  CachedPart CachedBeginning(uint64_t cache_namespace, std::span<const TokenId> tokens, std::span<const CacheOp> ops);
  /// Takes frames for the blocks of a text that follow its cached beginning, in order; their bytes may come until
  /// EndLoad. @param id  of nobody else @param tokens  whole blocks @param source  that of the bytes
  /// @return false when there are no frames, or nothing is missing; then nothing changed.
  bool BeginLoad(RequestId id, uint64_t cache_namespace, std::span<const TokenId> tokens, std::span<const CacheOp> ops,
                 BlockSource source, std::vector<FrameId>& frames);
  /// The first `blocks` of the frames hold what they should, and are found from now on. The sequence holds them, with
  /// what they follow, until End. @param tokens  as before
  void EndLoad(RequestId id, std::span<const TokenId> tokens, uint32_t blocks, TimeNs now);

  /// A cached full block whose bytes may be copied elsewhere: none that is to be forgotten, as nobody would remember
  /// that there.
  struct Storable {
    FrameId frame;
    PrefixTree::BlockFacts facts;  ///< Its tokens until something changes.
  };
  /// Of about `count` blocks that would be given up next those that are not judged (SetJudged) since they were used.
  void AppendOldest(uint32_t count, std::vector<Storable>& out) const;
  /// The blocks of a sequence's text, from its beginning on. To be asked before End.
  void AppendText(RequestId id, std::vector<Storable>& out) const;
  /// All there are, parents first.
  void AppendAll(std::vector<Storable>& out) const;
  DemotionFacts UsesOf(FrameId frame, uint64_t bytes) const { return uses_.FactsOf(frame, bytes, Now()); }
  void SetJudged(FrameId frame) { uses_.SetJudged(frame); }
  void SetAwaited(FrameId frame) { uses_.SetAwaited(frame); }
  bool IsAwaited(FrameId frame) const { return uses_.IsAwaited(frame); }
  /// Until EndStore nobody gets the frame for something else. REQUIRES: of a Storable.
  void BeginStore(FrameId frame) { pool_.BeginStoring(frame); }
  void EndStore(FrameId frame);
  /// Names of blocks that lower tiers must not have any more, since the last call: they are to be forgotten at some
  /// time, or were just now. Told where uses are counted.
  std::vector<ContentId> TakeForgotten() { return std::exchange(forgotten_, {}); }

  const SpanTable& spans() const { return spans_; }
  const PrefixTree& tree() const { return tree_; }
  FrameCounts counts() const { return pool_.counts(); }
  /// O(sequences).
  MemoryFigures Figures() const;
  /// Every node but the roots, parents first.
  std::vector<CachedText> Describe() const;
  const RetentionBook& retention() const { return book_; }
  /// Frames that a sequence could get: free, or cached and not pinned.
  uint32_t AvailableFrames() const;
  uint32_t frames_count() const { return options_.frames_count; }
  const KvMemoryStats& stats() const { return stats_; }

  /// Recounts every reference from the sequences and aborts on a difference. O(frames); for tests.
  void CheckInvariants() const;

 private:
  /// From `text_begin` on, the text lies in `span` from its block `first_block` on, until the next piece begins.
  struct Piece {
    uint32_t text_begin;
    SpanId span;
    uint32_t first_block;
    NodeId node{};  ///< It was found in; not kept up to date.
  };
  struct Sequence {
    std::vector<Piece> pieces;  ///< The last one is the tail.
    SpanId tail;                ///< Written by this sequence alone.
    LiveText live;
    std::vector<CacheOp> ops;
    uint32_t ops_applied = 0;
    NodeId anchor{};
    std::vector<TokenId> open_tokens;   ///< Committed tokens of the block that is not full yet.
    std::optional<BlockCopy> copy;      ///< Until asked for.
    std::optional<ReusedPart> copied;   ///< Where the beginning of the tail is from.
    std::optional<SpanId> copy_source;  ///< Holds the source's frame until the copy is made.
    double held_block_ns = 0;           ///< Less the integrals of the blocks that it references (HoldLedger).

    uint32_t tail_begin() const { return pieces.back().text_begin; }
    uint32_t sealed() const { return live.tokens() - static_cast<uint32_t>(open_tokens.size()); }
  };

  struct Move {
    BlockCopy copy;
    FrameId table;  ///< Of the source.
  };

  TimeNs Now() const { return holds_.now() == kTimeNever ? TimeNs{0} : holds_.now(); }
  Sequence& OpenSequence(RequestId id, uint64_t cache_namespace, std::span<const CacheOp> ops);
  void PlacePieces(Sequence& sequence);
  void AppendStorable(FrameId frame, std::vector<Storable>& out) const;
  const Sequence& SequenceOf(RequestId id) const { return sequences_.at(id); }
  std::optional<FrameId> TakeFrame(SpanId span, uint32_t block);
  /// Adds a reference to a frame or a split block, or drops one. @return the block's integral (HoldLedger)
  double Reference(FrameId frame);
  double Release(FrameId frame);
  uint32_t ReferencesOf(FrameId frame) const;
  void ReleaseEmptied();
  void Relocate(const BlockPlace& place, FrameId from, const PageEntry& entry);
  bool IsMoving(FrameId table) const;
  std::optional<BlockCopy> StartMove(const BlockPlace& from, FrameId table, const PageEntry& target);
  enum class Find { kWholeBlocks, kPartOfBlockToo };
  PrefixMatch FindUsable(NodeId root, const TextKey& text, Find find);
  void ExtendByOpenBlock(const Sequence& like, NodeId root, const TextKey& text, PrefixMatch& match) const;
  bool StartOn(Sequence& sequence, std::span<const TokenId> tokens, const Sequence* like);
  bool Hold(Sequence& sequence, const PrefixMatch& match, std::span<const TokenId> tokens);
  bool CopyPartial(Sequence& sequence, const PrefixMatch& match, std::span<const TokenId> tokens);
  void EndCopy(Sequence& sequence);
  void Seal(Sequence& sequence);
  FrameId Publish(Sequence& sequence, uint32_t block_begin);
  void ApplyDueOps(Sequence& sequence);
  void Apply(Sequence& sequence, const CacheOp& op);
  RetainOutcome Retain(const Sequence& sequence, FrameId covered_by, const Farewell& farewell);
  void RetainHigher(const Farewell& farewell, std::span<const BlockWish> wishes, RetainOutcome& outcome);
  void RetainLow(TimeNs now, std::span<const BlockWish> wishes);
  void Settle(FrameId frame, TimeNs now);
  void SetClass(FrameId frame, Retention retention);
  void EvictFromTree(FrameId frame, bool forgotten = false);
  bool IsToBeForgotten(FrameId frame) const { return book_.ForgottenAt(frame) != kTimeNever; }
  void TellForgotten(FrameId frame);
  void ForgetDoomed();
  FrameId FrameAt(const Sequence& sequence, uint32_t text_block) const;
  /// Calls with each frame that the sequence references, deepest first.
  template <class Visit>
  void VisitFrames(const Sequence& sequence, const Visit& visit) const;

  KvMemoryOptions options_;
  FramePool pool_;
  HoldLedger holds_;
  SpanTable spans_;
  PrefixTree tree_;
  absl::flat_hash_map<RequestId, Sequence> sequences_;
  RetentionBook book_;
  BlockUses uses_;
  std::vector<PathStep> path_;
  std::vector<FrameId> evicted_, due_;
  std::vector<FrameId> doomed_;       ///< To be forgotten as soon as nobody references them; some may no longer be.
  std::vector<ContentId> forgotten_;  ///< Until lower tiers are told.
  std::vector<PrefixTree::PathBlock> text_path_;  ///< Of the sequence that ends.
  std::optional<SplitBlocks> split_;
  std::vector<Move> moves_;       ///< Under way; each holds its spans and references both sides.
  std::vector<FrameId> emptied_;  ///< Frames that split blocks need no more.
  KvMemoryStats stats_;
};

}  // namespace kvist::kv
