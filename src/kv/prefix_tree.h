#pragma once

/// @file
/// What is cached, by content: a radix tree whose edges are keyed by tokens and by the operations that were applied
/// between them (A6: keys and values depend on both). Edges are runs of blocks of one span and are cut only between
/// blocks; the last block of a leaf may be partly filled. A node may have blocks without a frame (holes): the key
/// stays, for those who have dropped these tokens, and nobody else can pass. Namespaces are separate trees.
///
/// The tree names frames but does not count references: its owner tells it what it takes away (Evict), and asks for
/// what follows. It knows the retention class of its blocks, so that none goes because one of a lower class does.
/// Threads: engine thread only.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/units.h"
#include "kv/content_id.h"
#include "kv/frame_pool.h"
#include "kv/live_text.h"
#include "kv/page_layout.h"
#include "kv/span_table.h"

namespace kvist::kv {

using NodeId = Strong<struct NodeIdTag, uint32_t>;

/// Tokens of a text with its operations, from its start.
struct TextKey {
  std::span<const TokenId> tokens;
  std::span<const CacheOp> ops;  ///< In order of `at`; those after the tokens do not matter.
};

/// Leading tokens that are equal.
uint32_t CommonTokens(std::span<const TokenId> a, std::span<const TokenId> b);
/// First token before which the operations differ, or UINT32_MAX.
uint32_t FirstDifference(std::span<const CacheOp> a, std::span<const CacheOp> b);

/// One edge on the way to a match: its first `blocks` blocks.
struct PathStep {
  NodeId node;
  uint32_t blocks;
};

/// Longest cached beginning of a text.
struct PrefixMatch {
  uint32_t tokens = 0;          ///< In whole blocks: those of the path.
  uint32_t partial_tokens = 0;  ///< Of one more block, whose other tokens differ; 0 = none.
  SpanId partial_span;          ///< Where that block lies.
  uint32_t partial_block = 0;
};

/// Where a sequence's new blocks go.
struct Publication {
  NodeId node;  ///< Ends with the block.
  SpanId span;  ///< Whose entry says where the cached copy is.
  uint32_t block;
  FrameId frame;                      ///< The cached copy: the caller's, or the one that was there first.
  std::optional<FrameId> superseded;  ///< Frame of a partly filled block that the new one contains.
  /// Of a partly filled block that is not taken: the frame of the block that has its tokens and more.
  FrameId covered_by = kNoFrame;
};

class PrefixTree {
 public:
  /// What names of contents depend on beside texts and namespaces.
  struct Contents {
    uint64_t fingerprint = 0;  ///< RootContentId
    KvType codec = KvType::kF16;
  };

  /// @param frames_count  of the pool whose frames it names.
  PrefixTree(SpanTable& spans, uint32_t frames_count, const Contents& contents);

  /// Node that texts of a namespace start from. To be anchored before anything else is asked: a root that nobody needs
  /// goes.
  NodeId Root(uint64_t cache_namespace);

  /// What the names of a namespace's first blocks go on from.
  ContentId RootContent(uint64_t cache_namespace) const {
    return RootContentId(contents_.fingerprint, contents_.codec, cache_namespace);
  }

  /// Fills `path` with the edges of the longest match below `root`, holes included. No allocation once `path` has
  /// grown.
  PrefixMatch Find(NodeId root, const TextKey& text, std::vector<PathStep>& path) const;

  /// The node that ends after `blocks` blocks of `node`, which is cut there if need be. REQUIRES: blocks > 0 unless
  /// `node` is a root.
  NodeId Cut(NodeId node, uint32_t blocks);

  /// An anchored node stays, whatever happens to its frames.
  void Anchor(NodeId node);
  void Unanchor(NodeId node);
  /// Somebody used the text that ends with `node`, up to now.
  void Touch(NodeId node, TimeNs now);

  /// Adds one block that follows `anchor`, on which the caller holds an anchor that moves to the result's node.
  /// @param text  of the block alone: 1..kBlockTokens tokens; operations with `at` in the block.
  /// @param text_begin  index of its first token in the whole text.
  /// REQUIRES: nobody publishes after a block that is not full.
  Publication Publish(NodeId anchor, const TextKey& text, uint32_t text_begin, SpanId span, uint32_t block,
                      FrameId frame);

  bool Contains(FrameId frame) const;
  /// The cached block of `frame` is in `to` from now on; the SpanTable says so already.
  void Rename(FrameId frame, FrameId to);
  /// The name of what a frame of the tree holds.
  std::optional<ContentId> ContentIdOf(FrameId frame) const;
  /// What there is to say about a block to a lower tier.
  struct BlockFacts {
    ContentId id, parent;  ///< Parent: of the block before it, or the root's.
    uint64_t cache_namespace = 0;
    uint64_t ops_signature = 0;  ///< Of the operations up to the block's end; 0 = none.
    NodeId node;
    uint32_t text_begin = 0;
    std::span<const TokenId> tokens;  ///< Until the tree changes.
  };
  /// O(depth). REQUIRES: Contains(frame).
  BlockFacts Describe(FrameId frame) const;
  FrameId FrameOf(const PathStep& step, uint32_t block) const;
  SpanId SpanOf(NodeId node) const { return nodes_[node.value].span; }
  uint32_t FirstBlock(NodeId node) const { return nodes_[node.value].first_block; }

  /// Class of a block; new ones are kNormal.
  void SetRetention(FrameId frame, Retention retention);
  /// The last pinned block on some way down from this one, itself where there is no other.
  FrameId DeepestPinned(FrameId frame) const;

  /// The node that a block belongs to. REQUIRES: Contains(frame).
  NodeId NodeOf(FrameId frame) const { return NodeId{OwnerOf(frame).node}; }
  /// Index in its text of the block's first token.
  uint32_t TextBegin(FrameId frame) const;
  /// The blocks of the text that ends with `node`, deepest first; kNoFrame for holes.
  struct PathBlock {
    FrameId frame;
    uint32_t text_begin;
  };
  void AppendPath(NodeId node, std::vector<PathBlock>& out) const;
  /// Calls with the frame of each block that comes right after this one; kNoFrame for a hole.
  template <class Visit>
  void VisitNext(FrameId frame, const Visit& visit) const {
    const Owner& owner = OwnerOf(frame);
    const Node& node = nodes_[owner.node];
    const uint32_t next = owner.block - node.first_block + 1;
    if (next < node.blocks()) return visit(FrameOf({NodeId{owner.node}, 0}, next));
    for (const uint32_t child : node.children) visit(FrameOf({NodeId{child}, 0}, 0));
  }

  /// Takes a frame out of the tree. Blocks that only make sense after it go too, unless somebody may have dropped its
  /// tokens or one of them is of a higher class: their frames are appended to `with_it`.
  void Evict(FrameId frame, std::vector<FrameId>& with_it);

  /// Aborts unless parents, children, owners and counts agree, and what is low has only low blocks after it, where
  /// they would go with it. O(tree); for tests.
  void CheckInvariants() const;

  size_t blocks_count() const { return blocks_count_; }  ///< With a frame.
  size_t nodes_count() const { return nodes_count_; }    ///< Roots not counted.
  size_t roots_count() const { return roots_.size(); }

  /// A node as `GET /kvist/memory` shows it.
  struct NodeView {
    NodeId node, parent;
    uint64_t cache_namespace;
    uint32_t text_begin, tokens, blocks, holes, ops, anchors;
    uint32_t low, high, pinned;  ///< Blocks of these classes.
    TimeNs used_at;              ///< A sequence that had it ended last.
  };
  /// Every node but the roots, parents first.
  std::vector<NodeView> Nodes() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Node {
    uint32_t parent = kNone;
    uint64_t cache_namespace = 0;    ///< Of a root.
    std::vector<uint32_t> children;  ///< In order of their first block's key.
    std::vector<TokenId> tokens;
    std::vector<ContentId> contents;  ///< [blocks()]; of a root, what the first blocks go on from.
    std::vector<CacheOp> ops;         ///< With `at` in [text_begin, text_begin + tokens.size()).
    uint32_t text_begin = 0;
    SpanId span;
    uint32_t first_block = 0;
    uint32_t anchors = 0;
    uint32_t keepers = 0;  ///< Anchors and nodes with operations, in the subtree: its holes are kept for them.
    uint32_t resident = 0;
    uint32_t low = 0, high = 0, pinned = 0;     ///< Own blocks of these classes.
    uint32_t high_below = 0, pinned_below = 0;  ///< Nodes with such blocks in the subtree, this one included.
    TimeNs used_at{0};

    bool is_root() const { return parent == kNone; }
    uint32_t blocks() const { return static_cast<uint32_t>((tokens.size() + kBlockTokens - 1) / kBlockTokens); }
  };
  struct Owner {
    uint32_t node = kNone;
    uint32_t block = 0;  ///< In the span.
    Retention retention = Retention::kNormal;
  };
  struct Comparison {
    std::strong_ordering order;
    uint32_t common;  ///< Leading tokens that are equal, operations before them included.
  };

  uint32_t NewNode();
  void FreeNode(uint32_t index);
  Comparison CompareFirst(const Node& node, const TextKey& text) const;
  uint32_t Common(const Node& node, const TextKey& text) const;
  /// Position among the children where a block belongs; equal to the child that has it, if any.
  size_t ChildPosition(const Node& node, const TextKey& block) const;
  void AddKeepers(uint32_t index, int32_t count);
  void CountClass(uint32_t index, Retention retention, int32_t change);
  bool HigherAfter(const Node& node, uint32_t block, Retention retention) const;
  const Owner& OwnerOf(FrameId frame) const {
    return IsPageTable(frame) ? owners_of_tables_.at(frame) : owners_[frame.value];
  }
  Owner& OwnerOf(FrameId frame);
  void RemoveOwner(FrameId frame);
  void SetOwner(FrameId frame, uint32_t node, uint32_t block);
  void Disown(Node& node, uint32_t block, std::vector<FrameId>* out);
  void RemoveSubtree(uint32_t index, std::vector<FrameId>& out);
  void Detach(uint32_t index);
  void Truncate(Node& node, uint32_t blocks);
  void RemoveTrailingHoles(uint32_t index);
  void RemoveEmptyRoot(uint32_t index);
  void CheckClasses(uint32_t index) const;
  std::optional<FrameId> TakeSuperseded(Node& parent, const TextKey& text, size_t position);

  SpanTable& spans_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> free_nodes_;
  Contents contents_;
  std::vector<Owner> owners_;                             ///< [frames_count]
  absl::flat_hash_map<FrameId, Owner> owners_of_tables_;  ///< Of split blocks.
  absl::flat_hash_map<uint64_t, uint32_t> roots_;
  size_t blocks_count_ = 0, nodes_count_ = 0;
};

}  // namespace kvist::kv
