// Blocks that come from lower tiers, and those that go there.

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "kv/kv_memory.h"

namespace kvist::kv {

CachedPart KvMemory::CachedBeginning(uint64_t cache_namespace, std::span<const TokenId> tokens,
                                     std::span<const CacheOp> ops) {
  if (!options_.reuse) return {};
  const NodeId root = tree_.Root(cache_namespace);
  tree_.Anchor(root);
  CachedPart part{.tokens = FindUsable(root, {tokens, ops}, Find::kWholeBlocks).tokens};
  for (const PathStep& step : path_) {
    for (uint32_t block = 0; block < step.blocks; ++block) {
      const FrameId frame = tree_.FrameOf(step, block);
      if (frame != kNoFrame && ReferencesOf(frame) > 0) ++part.blocks_shared;
    }
  }
  tree_.Unanchor(root);
  return part;
}

bool KvMemory::BeginLoad(RequestId id, uint64_t cache_namespace, std::span<const TokenId> tokens,
                         std::span<const CacheOp> ops, BlockSource source, std::vector<FrameId>& frames) {
  KVIST_CHECK(options_.reuse && tokens.size() % kBlockTokens == 0);
  Sequence& sequence = OpenSequence(id, cache_namespace, ops);
  sequence.tail = spans_.Open(/*writer=*/{}, source);
  // What is read goes behind whole blocks.
  Hold(sequence, FindUsable(sequence.anchor, {tokens, ops}, Find::kWholeBlocks), tokens);
  PlacePieces(sequence);
  const uint32_t blocks = BlocksFor(tokens.size() - sequence.live.tokens());
  if (blocks == 0 || blocks > AvailableFrames()) {
    End(id);
    return false;
  }
  for (uint32_t block = 0; block < blocks; ++block) {
    const std::optional<FrameId> frame = TakeFrame(sequence.tail, block);
    KVIST_CHECK(frame.has_value());
    spans_.Append(sequence.tail, *frame);
    pool_.BeginLoading(*frame);
    frames.push_back(*frame);
  }
  return true;
}

void KvMemory::EndLoad(RequestId id, std::span<const TokenId> tokens, uint32_t blocks, TimeNs now) {
  const Sequence& sequence = SequenceOf(id);
  for (uint32_t block = 0; block < spans_.BlocksOf(sequence.tail); ++block) {
    pool_.EndTransfer(spans_.FrameOf(sequence.tail, block), /*keep=*/false);
  }
  const uint32_t end = sequence.live.tokens() + blocks * kBlockTokens;
  while (sequence.live.tokens() < end) {
    const uint32_t begin = sequence.live.tokens();
    Commit(id, tokens.subspan(begin, std::min(end - begin, TokensUntilOp(id))));
  }
  spans_.SetWritten(sequence.tail, now);
}

void KvMemory::AppendStorable(FrameId frame, std::vector<Storable>& out) const {
  if (frame == kNoFrame || IsPageTable(frame) || !tree_.Contains(frame) || pool_.InTransfer(frame)) return;
  if (IsToBeForgotten(frame)) return;
  PrefixTree::BlockFacts facts = tree_.Describe(frame);
  if (facts.tokens.size() == kBlockTokens) out.push_back({frame, facts});  // What is not full is not found by others.
}

void KvMemory::AppendOldest(uint32_t count, std::vector<Storable>& out) const {
  std::vector<FrameId> frames;
  pool_.AppendOldest(
      count, [&](FrameId frame) { return !uses_.IsJudged(frame) && !IsToBeForgotten(frame); }, frames);
  // With a block go those behind it, though they may be in buckets whose oldest are younger: they come first.
  absl::flat_hash_set<FrameId> seen;
  std::vector<FrameId> path;
  for (const FrameId frame : frames) {
    if (!seen.insert(frame).second) continue;
    path.assign(1, frame);
    for (size_t i = 0; i < path.size(); ++i) {
      tree_.VisitNext(path[i], [&](FrameId next) {
        if (next != kNoFrame && seen.insert(next).second) path.push_back(next);
      });
    }
    for (size_t i = path.size(); i-- > 0;) {
      if (!IsPageTable(path[i]) && !uses_.IsJudged(path[i])) AppendStorable(path[i], out);
    }
  }
}

void KvMemory::AppendText(RequestId id, std::vector<Storable>& out) const {
  std::vector<PrefixTree::PathBlock> path;
  tree_.AppendPath(SequenceOf(id).anchor, path);
  for (auto block = path.rbegin(); block != path.rend(); ++block) AppendStorable(block->frame, out);
}

void KvMemory::AppendAll(std::vector<Storable>& out) const {
  for (const PrefixTree::NodeView& node : tree_.Nodes()) {
    for (uint32_t block = 0; block < node.blocks + node.holes; ++block) {
      AppendStorable(tree_.FrameOf({node.node, 0}, block), out);
    }
  }
}

void KvMemory::EndStore(FrameId frame) {
  pool_.EndTransfer(frame, /*keep=*/tree_.Contains(frame));
  ForgetDoomed();
}

}  // namespace kvist::kv
