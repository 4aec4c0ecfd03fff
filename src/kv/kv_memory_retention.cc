// How long the blocks of ended sequences stay: see kv/retention.h.

#include <algorithm>

#include "base/check.h"
#include "kv/kv_memory.h"

namespace kvist::kv {
namespace {

TimeNs After(TimeNs now, int64_t ns) {
  return ns >= kForeverNs - std::max<int64_t>(now.value, 0) ? kTimeNever : now + ns;
}

}  // namespace

void KvMemory::SetClass(FrameId frame, Retention retention) {
  if (pool_.retention(frame) == retention) return;
  pool_.SetRetention(frame, retention);
  tree_.SetRetention(frame, retention);
}

void KvMemory::Settle(FrameId frame, TimeNs now) {
  const RetentionBook::Settled settled = book_.Settle(frame, now);
  SetClass(frame, settled.retention);
  if (settled.doomed) doomed_.push_back(frame);
}

/// @param covered_by  a block beside the path that has the sequence's last tokens, or kNoFrame
RetainOutcome KvMemory::Retain(const Sequence& sequence, FrameId covered_by, const Farewell& farewell) {
  RetainOutcome outcome;
  if (farewell.retain.empty() && !book_.any_low()) return outcome;
  text_path_.clear();
  if (covered_by != kNoFrame) text_path_.push_back({covered_by, sequence.sealed()});
  tree_.AppendPath(sequence.anchor, text_path_);
  // What is split is not cached.
  std::erase_if(text_path_,
                [](const PrefixTree::PathBlock& block) { return block.frame == kNoFrame || IsPageTable(block.frame); });
  const std::vector<BlockWish> wishes = WishesPerBlock(farewell.retain, sequence.live);
  if (!farewell.retain.empty()) RetainHigher(farewell, wishes, outcome);
  RetainLow(farewell.now, wishes);
  stats_.pins_refused += outcome.not_pinned_blocks;
  return outcome;
}

/// From the text's beginning on, so that pins that are too many are those of its end.
void KvMemory::RetainHigher(const Farewell& farewell, std::span<const BlockWish> wishes, RetainOutcome& outcome) {
  const TimeNs now = farewell.now;
  bool pins_left = farewell.may_pin;
  for (auto block = text_path_.rbegin(); block != text_path_.rend(); ++block) {
    const BlockWish& wish = wishes[block->text_begin / kBlockTokens];
    if (wish.pinned_ns > 0) {
      const bool pinned_already = farewell.may_pin && book_.ClassOf(block->frame) == Retention::kPinned;
      const bool room = book_.pins_left() && book_.pins_of(farewell.owner) < farewell.owner_pins_max;
      pins_left = pins_left && (pinned_already || room);
      const bool pin = pins_left || pinned_already;
      book_.Raise(block->frame, pin ? Retention::kPinned : Retention::kHigh, After(now, wish.pinned_ns),
                  farewell.owner);
      if (farewell.may_pin) ++(pin ? outcome.pinned_blocks : outcome.not_pinned_blocks);
    }
    if (wish.high_ns > 0) book_.Raise(block->frame, Retention::kHigh, After(now, wish.high_ns));
    if (wish.end_ns != BlockWish::kNone) book_.SetEnd(block->frame, After(now, wish.end_ns), wish.forget);
    Settle(block->frame, now);
    if (wish.forget && IsToBeForgotten(block->frame)) TellForgotten(block->frame);
  }
}

/// From the text's end on: a block is low only as long as all that follow it are.
void KvMemory::RetainLow(TimeNs now, std::span<const BlockWish> wishes) {
  for (const PrefixTree::PathBlock& block : text_path_) {
    const BlockWish& wish = wishes[block.text_begin / kBlockTokens];
    const TimeNs before = book_.Until(block.frame, Retention::kLow);
    TimeNs low = wish.not_low ? RetentionBook::kPast : before;
    if (wish.low_ns > 0) low = std::max(low, After(now, wish.low_ns));
    tree_.VisitNext(block.frame, [&](FrameId next) {
      low = std::min(low, next == kNoFrame ? RetentionBook::kPast : book_.Until(next, Retention::kLow));
    });
    if (low == before) continue;
    book_.SetLow(block.frame, low);
    Settle(block.frame, now);
  }
}

void KvMemory::Expire(TimeNs now) {
  if (book_.next() > now) return;
  due_.clear();
  book_.TakeDue(now, due_);
  // The ends of texts last: they are the first to be given up then.
  std::ranges::sort(due_, {}, [&](FrameId frame) { return tree_.TextBegin(frame); });
  for (const FrameId frame : due_) Settle(frame, now);
  ForgetDoomed();
}

void KvMemory::TellForgotten(FrameId frame) {
  if (!uses_.enabled()) return;  // Nobody asks.
  std::optional<ContentId> id = tree_.ContentIdOf(frame);
  if (!id) id = uses_.IdOf(frame);  // It has just left the tree.
  if (id) forgotten_.push_back(*id);
}

/// Frees what is to be forgotten and referenced by nobody.
void KvMemory::ForgetDoomed() {
  std::erase_if(doomed_, [&](FrameId frame) {
    if (!book_.IsDoomed(frame)) return true;
    if (pool_.state(frame) != FrameState::kCached) return false;
    EvictFromTree(frame, /*forgotten=*/true);
    pool_.Forget(frame);
    stats_.forgotten_blocks += 1 + evicted_.size();
    return true;
  });
}

uint32_t KvMemory::YieldPins(uint32_t blocks, TimeNs now) {
  uint32_t yielded = 0;
  while (yielded < blocks) {
    const std::optional<FrameId> oldest = pool_.OldestPinned();
    if (!oldest) break;
    const FrameId deepest = tree_.DeepestPinned(*oldest);
    const FrameId frame = pool_.state(deepest) == FrameState::kCached ? deepest : *oldest;
    book_.Unpin(frame);
    Settle(frame, now);
    ++yielded;
  }
  stats_.pins_yielded += yielded;
  return yielded;
}

std::vector<CachedText> KvMemory::Describe() const {
  std::vector<CachedText> out;
  for (const PrefixTree::NodeView& node : tree_.Nodes()) {
    CachedText& text = out.emplace_back(CachedText{.node = node});
    if (book_.empty()) continue;
    if (node.low > 0) text.strongest = Retention::kLow;
    if (node.low < node.blocks) text.strongest = Retention::kNormal;
    if (node.high > 0) text.strongest = Retention::kHigh;
    if (node.pinned > 0) text.strongest = Retention::kPinned;
    TimeNs until = RetentionBook::kPast;
    for (uint32_t block = 0; block < node.blocks + node.holes; ++block) {
      const FrameId frame = tree_.FrameOf({node.node, 0}, block);
      if (frame == kNoFrame) continue;
      until = std::max(until, book_.Until(frame, text.strongest));
      text.forgotten_at = std::min(text.forgotten_at, book_.ForgottenAt(frame));
    }
    if (text.strongest != Retention::kNormal) text.until = until;
  }
  return out;
}

}  // namespace kvist::kv
