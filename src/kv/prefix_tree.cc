#include "kv/prefix_tree.h"

#include <algorithm>
#include <compare>
#include <cstring>

#include "base/check.h"
#include "base/prng.h"

namespace kvist::kv {
namespace {

/// Operations that come before one of `count` tokens from `begin` on.
std::span<const CacheOp> OpsWithin(std::span<const CacheOp> ops, uint32_t begin, size_t count) {
  const auto first = std::ranges::lower_bound(ops, begin, {}, &CacheOp::at);
  const auto last = std::ranges::lower_bound(first, ops.end(), begin + count, {}, &CacheOp::at);
  return {first, last};
}

}  // namespace

uint32_t CommonTokens(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t count = std::min(a.size(), b.size());
  size_t i = 0;
  for (; i + kBlockTokens <= count; i += kBlockTokens) {
    if (std::memcmp(a.data() + i, b.data() + i, kBlockTokens * sizeof(TokenId)) != 0) break;
  }
  while (i < count && a[i] == b[i]) ++i;
  return static_cast<uint32_t>(i);
}

uint32_t FirstDifference(std::span<const CacheOp> a, std::span<const CacheOp> b) {
  const auto [in_a, in_b] = std::ranges::mismatch(a, b);
  const uint32_t at_a = in_a == a.end() ? UINT32_MAX : in_a->at;
  return std::min(at_a, in_b == b.end() ? UINT32_MAX : in_b->at);
}

PrefixTree::PrefixTree(SpanTable& spans, uint32_t frames_count, const Contents& contents)
    : spans_(spans), contents_(contents), owners_(frames_count) {}

NodeId PrefixTree::Root(uint64_t cache_namespace) {
  const auto [it, inserted] = roots_.try_emplace(cache_namespace, 0);
  if (inserted) {
    it->second = NewNode();
    nodes_[it->second].cache_namespace = cache_namespace;
    nodes_[it->second].contents = {RootContent(cache_namespace)};
    --nodes_count_;
  }
  return NodeId{it->second};
}

uint32_t PrefixTree::NewNode() {
  ++nodes_count_;
  if (free_nodes_.empty()) {
    nodes_.emplace_back();
    return static_cast<uint32_t>(nodes_.size() - 1);
  }
  const uint32_t index = free_nodes_.back();
  free_nodes_.pop_back();
  return index;
}

void PrefixTree::FreeNode(uint32_t index) {
  nodes_[index] = {};
  free_nodes_.push_back(index);
  --nodes_count_;
}

PrefixTree::Comparison PrefixTree::CompareFirst(const Node& node, const TextKey& text) const {
  const std::span<const TokenId> tokens =
      std::span(node.tokens).first(std::min<size_t>(node.tokens.size(), kBlockTokens));
  const std::span<const CacheOp> own = OpsWithin(node.ops, node.text_begin, tokens.size());
  const uint32_t common = CommonTokens(tokens, text.tokens);
  const uint32_t different = FirstDifference(own, text.ops);
  if (different != UINT32_MAX && different - node.text_begin <= common) {
    const auto [a, b] = std::ranges::mismatch(own, text.ops);
    const bool a_here = a != own.end() && a->at == different, b_here = b != text.ops.end() && b->at == different;
    const std::strong_ordering order = a_here && b_here ? *a <=> *b : a_here <=> b_here;
    return {order, different - node.text_begin};
  }
  if (common < tokens.size() && common < text.tokens.size()) return {tokens[common] <=> text.tokens[common], common};
  return {tokens.size() <=> text.tokens.size(), common};
}

uint32_t PrefixTree::Common(const Node& node, const TextKey& text) const {
  const uint32_t tokens = CommonTokens(node.tokens, text.tokens);
  const uint32_t different = FirstDifference(node.ops, OpsWithin(text.ops, node.text_begin, node.tokens.size()));
  return different == UINT32_MAX ? tokens : std::min(tokens, different - node.text_begin);
}

size_t PrefixTree::ChildPosition(const Node& node, const TextKey& block) const {
  const auto it = std::ranges::partition_point(
      node.children, [&](uint32_t child) { return std::is_lt(CompareFirst(nodes_[child], block).order); });
  return static_cast<size_t>(it - node.children.begin());
}

PrefixMatch PrefixTree::Find(NodeId root, const TextKey& text, std::vector<PathStep>& path) const {
  path.clear();
  PrefixMatch match;
  uint32_t at = root.value;
  while (match.tokens < text.tokens.size()) {
    const Node& node = nodes_[at];
    const TextKey rest{text.tokens.subspan(match.tokens), text.ops};
    const size_t block_tokens = std::min<size_t>(rest.tokens.size(), kBlockTokens);
    const TextKey block{rest.tokens.first(block_tokens), OpsWithin(text.ops, match.tokens, block_tokens)};
    const size_t position = ChildPosition(node, block);
    // Keys are ordered: what begins most like this block is one of the two neighbours of its place.
    uint32_t best = kNone, common = 0;
    for (size_t i = position == 0 ? 0 : position - 1; i < node.children.size() && i <= position; ++i) {
      const uint32_t here = CompareFirst(nodes_[node.children[i]], block).common;
      if (here > common) std::tie(best, common) = std::pair(node.children[i], here);
    }
    if (best == kNone) break;
    const Node& child = nodes_[best];
    if (common == kBlockTokens) common = Common(child, rest);
    const uint32_t blocks = common / kBlockTokens;
    if (blocks > 0) path.push_back({NodeId{best}, blocks});
    match.tokens += blocks * kBlockTokens;
    at = best;
    if (common == child.tokens.size() && common % kBlockTokens == 0) continue;
    const bool has_frame = common % kBlockTokens != 0 && FrameOf({NodeId{best}, 0}, blocks) != kNoFrame;
    if (has_frame) {
      match.partial_tokens = common % kBlockTokens;
      match.partial_span = child.span;
      match.partial_block = child.first_block + blocks;
    }
    break;
  }
  return match;
}

FrameId PrefixTree::FrameOf(const PathStep& step, uint32_t block) const {
  const Node& node = nodes_[step.node.value];
  return spans_.FrameOf(node.span, node.first_block + block);
}

bool PrefixTree::Contains(FrameId frame) const {
  return IsPageTable(frame) ? owners_of_tables_.contains(frame) : owners_[frame.value].node != kNone;
}

PrefixTree::Owner& PrefixTree::OwnerOf(FrameId frame) {
  return IsPageTable(frame) ? owners_of_tables_[frame] : owners_[frame.value];
}

void PrefixTree::RemoveOwner(FrameId frame) {
  if (IsPageTable(frame)) {
    owners_of_tables_.erase(frame);
  } else {
    owners_[frame.value].node = kNone;
  }
}

void PrefixTree::Rename(FrameId frame, FrameId to) {
  KVIST_CHECK(Contains(frame) && !Contains(to));
  const Owner owner = OwnerOf(frame);
  RemoveOwner(frame);
  OwnerOf(to) = owner;
}

std::optional<ContentId> PrefixTree::ContentIdOf(FrameId frame) const {
  if (frame == kNoFrame || !Contains(frame)) return std::nullopt;
  const Owner& owner = OwnerOf(frame);
  const Node& node = nodes_[owner.node];
  return node.contents[owner.block - node.first_block];
}

PrefixTree::BlockFacts PrefixTree::Describe(FrameId frame) const {
  const Owner& owner = OwnerOf(frame);
  const Node& node = nodes_[owner.node];
  const uint32_t block = owner.block - node.first_block, begin = block * kBlockTokens;
  const auto tokens = std::span(node.tokens).subspan(begin);
  BlockFacts facts{.id = node.contents[block],
                   .parent = block > 0 ? node.contents[block - 1] : nodes_[node.parent].contents.back(),
                   .node = NodeId{owner.node},
                   .text_begin = node.text_begin + begin,
                   .tokens = tokens.first(std::min<size_t>(tokens.size(), kBlockTokens))};
  const uint32_t end = facts.text_begin + static_cast<uint32_t>(facts.tokens.size());
  uint32_t index = owner.node;
  for (; !nodes_[index].is_root(); index = nodes_[index].parent) {
    for (const CacheOp& op : nodes_[index].ops) {
      if (op.at >= end) break;
      const uint64_t range = uint64_t{op.begin} << 32 | op.end;
      facts.ops_signature ^= Mix64(range + Mix64(op.at * 2 + (op.reposition ? 1 : 0)));
    }
  }
  facts.cache_namespace = nodes_[index].cache_namespace;
  return facts;
}

NodeId PrefixTree::Cut(NodeId id, uint32_t blocks) {
  const uint32_t lower_index = id.value;
  KVIST_CHECK(nodes_[lower_index].is_root() || (blocks > 0 && blocks <= nodes_[lower_index].blocks()));
  if (blocks == nodes_[lower_index].blocks()) return id;
  const uint32_t upper_index = NewNode();
  Node& lower = nodes_[lower_index];  // Keeps its id: it is the end that sequences are anchored at.
  Node& upper = nodes_[upper_index];
  const uint32_t tokens = blocks * kBlockTokens;
  upper.parent = lower.parent;
  upper.children = {lower_index};
  upper.text_begin = lower.text_begin;
  upper.span = lower.span;
  upper.first_block = lower.first_block;
  spans_.Hold(upper.span);
  const auto cut = lower.tokens.begin() + tokens;
  upper.tokens.assign(lower.tokens.begin(), cut);
  lower.tokens.erase(lower.tokens.begin(), cut);
  const auto cut_contents = lower.contents.begin() + blocks;
  upper.contents.assign(lower.contents.begin(), cut_contents);
  lower.contents.erase(lower.contents.begin(), cut_contents);
  const int32_t lower_had_ops = lower.ops.empty() ? 0 : 1;
  const std::span<const CacheOp> upper_ops = OpsWithin(lower.ops, lower.text_begin, tokens);
  upper.ops.assign(upper_ops.begin(), upper_ops.end());
  lower.ops.erase(lower.ops.begin(), lower.ops.begin() + static_cast<ptrdiff_t>(upper.ops.size()));
  lower.text_begin += tokens;
  lower.first_block += blocks;
  *std::ranges::find(nodes_[upper.parent].children, lower_index) = upper_index;
  lower.parent = upper_index;
  upper.high_below = lower.high_below;
  upper.pinned_below = lower.pinned_below;
  upper.used_at = lower.used_at;
  for (uint32_t block = 0; block < blocks; ++block) {
    const FrameId frame = FrameOf({NodeId{upper_index}, 0}, block);
    if (frame == kNoFrame) continue;
    OwnerOf(frame).node = upper_index;
    ++upper.resident;
    --lower.resident;
    if (const Retention retention = OwnerOf(frame).retention; retention != Retention::kNormal) {
      CountClass(lower_index, retention, -1);
      CountClass(upper_index, retention, +1);
    }
  }
  const uint32_t before = lower.keepers;
  lower.keepers = before - lower_had_ops + (lower.ops.empty() ? 0 : 1);
  upper.keepers = lower.keepers + (upper.ops.empty() ? 0 : 1);
  AddKeepers(upper.parent, static_cast<int32_t>(upper.keepers) - static_cast<int32_t>(before));
  return NodeId{upper_index};
}

void PrefixTree::AddKeepers(uint32_t index, int32_t count) {
  for (; count != 0 && index != kNone; index = nodes_[index].parent) nodes_[index].keepers += count;
}

void PrefixTree::CountClass(uint32_t index, Retention retention, int32_t change) {
  Node& node = nodes_[index];
  if (retention == Retention::kLow) node.low += change;
  if (retention <= Retention::kNormal) return;
  const bool pinned = retention == Retention::kPinned;
  uint32_t& own = pinned ? node.pinned : node.high;
  const bool had = own > 0;
  own += change;
  if (had == (own > 0)) return;
  for (uint32_t i = index; i != kNone; i = nodes_[i].parent) {
    (pinned ? nodes_[i].pinned_below : nodes_[i].high_below) += change;
  }
}

void PrefixTree::SetRetention(FrameId frame, Retention retention) {
  KVIST_CHECK(Contains(frame));
  Owner& owner = OwnerOf(frame);
  CountClass(owner.node, owner.retention, -1);
  CountClass(owner.node, owner.retention = retention, +1);
}

/// Any block after this one of a class above kNormal and above `retention`?
bool PrefixTree::HigherAfter(const Node& node, uint32_t block, Retention retention) const {
  const bool high_counts = retention < Retention::kHigh;
  if (node.pinned_below == 0 && (!high_counts || node.high_below == 0)) return false;
  for (const uint32_t child : node.children) {
    if (nodes_[child].pinned_below > 0 || (high_counts && nodes_[child].high_below > 0)) return true;
  }
  for (uint32_t i = block + 1; i < node.blocks(); ++i) {
    const FrameId frame = spans_.FrameOf(node.span, node.first_block + i);
    if (frame == kNoFrame) continue;
    if (OwnerOf(frame).retention > std::max(retention, Retention::kNormal)) return true;
  }
  return false;
}

FrameId PrefixTree::DeepestPinned(FrameId frame) const {
  const Owner& owner = OwnerOf(frame);
  uint32_t index = owner.node;
  const auto has_pinned = [&](uint32_t child) { return nodes_[child].pinned_below > 0; };
  for (auto it = std::ranges::find_if(nodes_[index].children, has_pinned); it != nodes_[index].children.end();
       it = std::ranges::find_if(nodes_[index].children, has_pinned)) {
    index = *it;
  }
  for (uint32_t block = nodes_[index].blocks(); block-- > 0;) {
    const FrameId last = FrameOf({NodeId{index}, 0}, block);
    if (last != kNoFrame && OwnerOf(last).retention == Retention::kPinned) return last;
  }
  return frame;
}

uint32_t PrefixTree::TextBegin(FrameId frame) const {
  const Owner& owner = OwnerOf(frame);
  const Node& node = nodes_[owner.node];
  return node.text_begin + (owner.block - node.first_block) * kBlockTokens;
}

void PrefixTree::AppendPath(NodeId id, std::vector<PathBlock>& out) const {
  for (uint32_t index = id.value; !nodes_[index].is_root(); index = nodes_[index].parent) {
    const Node& node = nodes_[index];
    for (uint32_t block = node.blocks(); block-- > 0;) {
      out.push_back({FrameOf({NodeId{index}, 0}, block), node.text_begin + block * kBlockTokens});
    }
  }
}

void PrefixTree::Anchor(NodeId node) {
  ++nodes_[node.value].anchors;
  AddKeepers(node.value, 1);
}

void PrefixTree::Unanchor(NodeId node) {
  KVIST_CHECK(nodes_[node.value].anchors > 0);
  --nodes_[node.value].anchors;
  AddKeepers(node.value, -1);
  RemoveTrailingHoles(node.value);
}

void PrefixTree::Touch(NodeId node, TimeNs now) {
  for (uint32_t index = node.value; index != kNone; index = nodes_[index].parent) {
    nodes_[index].used_at = std::max(nodes_[index].used_at, now);
  }
}

void PrefixTree::SetOwner(FrameId frame, uint32_t node, uint32_t block) {
  KVIST_CHECK(!Contains(frame));
  OwnerOf(frame) = {.node = node, .block = block};
  ++nodes_[node].resident;
  ++blocks_count_;
}

/// Takes the frame of a block of the node away, if it has one.
void PrefixTree::Disown(Node& node, uint32_t block, std::vector<FrameId>* out) {
  const FrameId frame = spans_.FrameOf(node.span, node.first_block + block);
  if (frame == kNoFrame) return;
  spans_.Replace(node.span, node.first_block + block, kNoFrame);
  SetRetention(frame, Retention::kNormal);
  RemoveOwner(frame);
  --node.resident;
  --blocks_count_;
  if (out != nullptr) out->push_back(frame);
}

std::optional<FrameId> PrefixTree::TakeSuperseded(Node& parent, const TextKey& text, size_t position) {
  if (position == 0) return std::nullopt;
  const uint32_t index = parent.children[position - 1];
  Node& before = nodes_[index];
  if (before.tokens.size() >= text.tokens.size() || before.anchors > 0) return std::nullopt;
  if (CompareFirst(before, text).common != before.tokens.size()) return std::nullopt;
  const FrameId frame = FrameOf({NodeId{index}, 0}, 0);
  Disown(before, 0, nullptr);
  Detach(index);
  return frame == kNoFrame ? std::nullopt : std::optional(frame);
}

Publication PrefixTree::Publish(NodeId anchor, const TextKey& text, uint32_t text_begin, SpanId span, uint32_t block,
                                FrameId frame) {
  const bool full = text.tokens.size() == kBlockTokens;
  size_t position = ChildPosition(nodes_[anchor.value], text);
  if (position < nodes_[anchor.value].children.size()) {
    const uint32_t child = nodes_[anchor.value].children[position];
    if (CompareFirst(nodes_[child], text).common == text.tokens.size()) {
      if (!full) return {anchor, span, block, kNoFrame, std::nullopt, FrameOf({NodeId{child}, 0}, 0)};
      const NodeId found = Cut(NodeId{child}, 1);
      Anchor(found);
      Unanchor(anchor);
      const FrameId other = FrameOf({found, 0}, 0);
      if (other == kNoFrame) {
        spans_.Replace(SpanOf(found), FirstBlock(found), frame);
        SetOwner(frame, found.value, FirstBlock(found));
      }
      return {found, SpanOf(found), FirstBlock(found), other == kNoFrame ? frame : other, std::nullopt, kNoFrame};
    }
  }
  Node& node = nodes_[anchor.value];
  const ContentId content = NextContentId(node.contents.back(), text.tokens, text.ops);
  const bool extends = !node.is_root() && node.children.empty() && node.anchors == 1 && node.span == span &&
                       node.first_block + node.blocks() == block;
  if (extends) {
    KVIST_CHECK(node.tokens.size() % kBlockTokens == 0);
    node.tokens.insert(node.tokens.end(), text.tokens.begin(), text.tokens.end());
    node.contents.push_back(content);
    if (node.ops.empty() && !text.ops.empty()) AddKeepers(anchor.value, 1);
    node.ops.insert(node.ops.end(), text.ops.begin(), text.ops.end());
    SetOwner(frame, anchor.value, block);
    return {anchor, span, block, frame, std::nullopt, kNoFrame};
  }
  const std::optional<FrameId> superseded = TakeSuperseded(node, text, position);
  if (superseded) --position;
  const uint32_t index = NewNode();
  Node& child = nodes_[index];
  child.parent = anchor.value;
  child.tokens.assign(text.tokens.begin(), text.tokens.end());
  child.contents = {content};
  child.ops.assign(text.ops.begin(), text.ops.end());
  child.text_begin = text_begin;
  child.span = span;
  child.first_block = block;
  spans_.Hold(span);
  if (!child.ops.empty()) AddKeepers(index, 1);
  std::vector<uint32_t>& siblings = nodes_[anchor.value].children;
  siblings.insert(siblings.begin() + static_cast<ptrdiff_t>(position), index);
  SetOwner(frame, index, block);
  Anchor(NodeId{index});
  Unanchor(anchor);
  return {NodeId{index}, span, block, frame, superseded, kNoFrame};
}

void PrefixTree::Detach(uint32_t index) {
  Node& node = nodes_[index];
  KVIST_CHECK(node.children.empty() && node.anchors == 0 && node.resident == 0 && node.high + node.pinned == 0);
  std::erase(nodes_[node.parent].children, index);
  AddKeepers(node.parent, -static_cast<int32_t>(node.keepers));
  spans_.Release(node.span);
  FreeNode(index);
}

/// Keeps the first `blocks` blocks; the others have no frames.
void PrefixTree::Truncate(Node& node, uint32_t blocks) {
  if (blocks >= node.blocks()) return;
  node.tokens.resize(size_t{blocks} * kBlockTokens);
  node.contents.resize(blocks);
  const size_t ops = OpsWithin(node.ops, node.text_begin, node.tokens.size()).size();
  const bool had_ops = !node.ops.empty();
  node.ops.resize(ops);
  if (had_ops && ops == 0) AddKeepers(static_cast<uint32_t>(&node - nodes_.data()), -1);
}

void PrefixTree::RemoveTrailingHoles(uint32_t index) {
  while (!nodes_[index].is_root() && nodes_[index].children.empty() && nodes_[index].anchors == 0) {
    Node& node = nodes_[index];
    uint32_t blocks = node.blocks();
    while (blocks > 0 && FrameOf({NodeId{index}, 0}, blocks - 1) == kNoFrame) --blocks;
    Truncate(node, blocks);
    if (blocks > 0) return;
    const uint32_t parent = node.parent;
    Detach(index);
    index = parent;
  }
  RemoveEmptyRoot(index);
}

/// Namespaces come and go with their salts.
void PrefixTree::RemoveEmptyRoot(uint32_t index) {
  const Node& node = nodes_[index];
  if (!node.is_root() || !node.children.empty() || node.anchors > 0) return;
  roots_.erase(node.cache_namespace);
  ++nodes_count_;  // Roots are not counted.
  FreeNode(index);
}

void PrefixTree::RemoveSubtree(uint32_t index, std::vector<FrameId>& out) {
  std::vector<uint32_t> order = {index};  // Parents first.
  for (size_t i = 0; i < order.size(); ++i) {
    const std::vector<uint32_t>& children = nodes_[order[i]].children;
    order.insert(order.end(), children.begin(), children.end());
  }
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    Node& node = nodes_[*it];
    for (uint32_t block = node.blocks(); block-- > 0;) Disown(node, block, &out);
    Detach(*it);
  }
}

void PrefixTree::Evict(FrameId frame, std::vector<FrameId>& with_it) {
  KVIST_CHECK(Contains(frame));
  const Owner owner = OwnerOf(frame);
  Node& node = nodes_[owner.node];
  const uint32_t block = owner.block - node.first_block;
  const bool higher_later = HigherAfter(node, block, owner.retention);
  Disown(node, block, nullptr);
  const uint32_t text_end = node.text_begin + (block + 1) * kBlockTokens;
  const bool ops_later = !node.ops.empty() && node.ops.back().at >= text_end;
  const uint32_t keepers = node.keepers - (node.ops.empty() ? 0 : 1) + (ops_later ? 1 : 0);
  if (keepers == 0 && !higher_later) {
    for (uint32_t i = block + 1; i < node.blocks(); ++i) Disown(node, i, &with_it);
    while (!nodes_[owner.node].children.empty()) RemoveSubtree(nodes_[owner.node].children.back(), with_it);
  }
  RemoveTrailingHoles(owner.node);
}

std::vector<PrefixTree::NodeView> PrefixTree::Nodes() const {
  std::vector<NodeView> out;
  // What is done with them is done in this order: it is the same in every run.
  std::vector<std::pair<uint64_t, uint32_t>> roots(roots_.begin(), roots_.end());
  std::ranges::sort(roots);
  for (const auto& [cache_namespace, root] : roots) {
    std::vector<uint32_t> order = nodes_[root].children;
    for (size_t i = 0; i < order.size(); ++i) {
      const Node& node = nodes_[order[i]];
      out.push_back({.node = NodeId{order[i]},
                     .parent = NodeId{node.parent},
                     .cache_namespace = cache_namespace,
                     .text_begin = node.text_begin,
                     .tokens = static_cast<uint32_t>(node.tokens.size()),
                     .blocks = node.resident,
                     .holes = node.blocks() - node.resident,
                     .ops = static_cast<uint32_t>(node.ops.size()),
                     .anchors = node.anchors,
                     .low = node.low,
                     .high = node.high,
                     .pinned = node.pinned,
                     .used_at = node.used_at});
      order.insert(order.end(), node.children.begin(), node.children.end());
    }
  }
  return out;
}

void PrefixTree::CheckClasses(uint32_t index) const {
  const Node& node = nodes_[index];
  uint32_t low = 0, high = 0, pinned = 0;
  for (uint32_t b = 0; b < node.blocks(); ++b) {
    const FrameId frame = FrameOf({NodeId{index}, 0}, b);
    if (frame == kNoFrame) continue;
    const Retention retention = OwnerOf(frame).retention;
    high += retention == Retention::kHigh ? 1 : 0;
    pinned += retention == Retention::kPinned ? 1 : 0;
    if (retention != Retention::kLow) continue;
    ++low;
    if (node.keepers > 0) continue;
    VisitNext(frame,
              [&](FrameId next) { KVIST_CHECK(next == kNoFrame || OwnerOf(next).retention != Retention::kNormal); });
  }
  KVIST_CHECK(low == node.low && high == node.high && pinned == node.pinned);
  uint32_t high_below = high > 0 ? 1 : 0, pinned_below = pinned > 0 ? 1 : 0;
  for (const uint32_t child : node.children) {
    high_below += nodes_[child].high_below;
    pinned_below += nodes_[child].pinned_below;
  }
  KVIST_CHECK(high_below == node.high_below && pinned_below == node.pinned_below);
}

void PrefixTree::CheckInvariants() const {
  size_t nodes = 0, blocks = 0;
  std::vector<uint32_t> order;
  for (const auto& [cache_namespace, root] : roots_) order.push_back(root);
  for (size_t i = 0; i < order.size(); ++i) {
    const Node& node = nodes_[order[i]];
    uint32_t keepers = node.anchors + (node.ops.empty() ? 0 : 1);
    for (size_t c = 0; c < node.children.size(); ++c) {
      const Node& child = nodes_[node.children[c]];
      KVIST_CHECK(child.parent == order[i] && child.text_begin == node.text_begin + node.tokens.size());
      KVIST_CHECK(node.tokens.size() % kBlockTokens == 0 && !child.tokens.empty());
      keepers += child.keepers;
      if (c == 0) continue;
      const size_t first = std::min<size_t>(child.tokens.size(), kBlockTokens);
      const TextKey key{std::span(child.tokens).first(first), OpsWithin(child.ops, child.text_begin, first)};
      KVIST_CHECK(std::is_lt(CompareFirst(nodes_[node.children[c - 1]], key).order));
    }
    KVIST_CHECK(keepers == node.keepers && FindFault(node.ops).empty());
    KVIST_CHECK(node.contents.size() == (node.is_root() ? 1 : node.blocks()));
    order.insert(order.end(), node.children.begin(), node.children.end());
    if (node.is_root()) continue;
    ++nodes;
    uint32_t resident = 0;
    for (uint32_t b = 0; b < node.blocks(); ++b) {
      const FrameId frame = FrameOf({NodeId{order[i]}, 0}, b);
      if (frame == kNoFrame) continue;
      ++resident;
      KVIST_CHECK(Contains(frame) && spans_.Blocks(node.span)[node.first_block + b].state != PageState::kElsewhere);
      const Owner& owner = OwnerOf(frame);
      KVIST_CHECK(owner.node == order[i] && owner.block == node.first_block + b);
    }
    KVIST_CHECK(resident == node.resident);
    CheckClasses(order[i]);
    blocks += resident;
    for (const CacheOp& op : node.ops) {
      KVIST_CHECK(op.at >= node.text_begin && op.at < node.text_begin + node.tokens.size());
    }
    const bool needed = !node.children.empty() || node.anchors > 0;
    KVIST_CHECK(needed || FrameOf({NodeId{order[i]}, 0}, node.blocks() - 1) != kNoFrame);
  }
  KVIST_CHECK(nodes == nodes_count_ && blocks == blocks_count_);
  const auto owned = std::ranges::count_if(owners_, [](const Owner& owner) { return owner.node != kNone; });
  KVIST_CHECK(static_cast<size_t>(owned) + owners_of_tables_.size() == blocks_count_);
}

}  // namespace kvist::kv
