#include "kv/kv_memory.h"

#include <algorithm>

#include "base/check.h"

namespace kvist::kv {
namespace {

KvType CodecOf(const KvMemoryOptions& options) {
  return options.layout ? options.layout->type() : KvType::kF16;
}

}  // namespace

KvMemory::KvMemory(const KvMemoryOptions& options)
    : options_(options),
      pool_(options.frames_count, options.buckets),
      holds_(options.frames_count),
      spans_(CodecOf(options)),
      tree_(spans_, options.frames_count, {options.fingerprint, CodecOf(options)}),
      book_(static_cast<uint32_t>(options.pin_share * options.frames_count)),
      uses_(options.frames_count, options.uses_remembered) {
  if (options.layout) split_.emplace(*options.layout, spans_);
}

uint32_t KvMemory::AvailableFrames() const {
  const FrameCounts counts = pool_.counts();
  return counts.free + counts.cached - counts.pinned;
}

/// The longest match whose view has all of its frames.
PrefixMatch KvMemory::FindUsable(NodeId root, const TextKey& text, Find find) {
  PrefixMatch match = tree_.Find(root, text, path_);
  // An operation that is due within the block that is left out is not done yet, so that what it drops is needed.
  if (find == Find::kWholeBlocks) match.partial_tokens = 0;
  while (true) {
    const LiveText live = LiveText::After(match.tokens + match.partial_tokens, text.ops);
    uint32_t begin = 0;
    std::optional<uint32_t> hole;
    for (size_t s = 0; s < path_.size() && !hole; ++s) {
      for (uint32_t block = 0; block < path_[s].blocks; ++block, begin += kBlockTokens) {
        if (tree_.FrameOf(path_[s], block) != kNoFrame || !live.AnyLive(begin, begin + kBlockTokens)) continue;
        hole = begin;
        path_[s].blocks = block;
        path_.resize(block > 0 ? s + 1 : s);
        break;
      }
    }
    if (!hole) return match;
    match = PrefixMatch{};
    match.tokens = *hole;  // Fewer tokens, so fewer operations: what was dropped may be needed again.
  }
}

/// A text that goes on as `like` did after its last full block shares what that one has of the next block.
void KvMemory::ExtendByOpenBlock(const Sequence& like, NodeId root, const TextKey& text, PrefixMatch& match) const {
  const uint32_t sealed = like.sealed();
  const NodeId last = path_.empty() ? root : path_.back().node;
  if (match.tokens != sealed || last != like.anchor || like.copy_source) return;
  const auto applied = std::span(like.ops).first(like.ops_applied);
  const uint32_t common = std::min(CommonTokens(like.open_tokens, text.tokens.subspan(sealed)),
                                   FirstDifference(applied, text.ops) - sealed);
  if (common <= match.partial_tokens) return;
  match.partial_tokens = common;
  match.partial_span = like.tail;
  match.partial_block = (sealed - like.tail_begin()) / kBlockTokens;
}

KvMemory::Sequence& KvMemory::OpenSequence(RequestId id, uint64_t cache_namespace, std::span<const CacheOp> ops) {
  const auto [it, inserted] = sequences_.try_emplace(id);
  KVIST_CHECK(inserted && FindFault(ops).empty());
  Sequence& sequence = it->second;
  sequence.ops.assign(ops.begin(), ops.end());
  sequence.anchor = tree_.Root(cache_namespace);
  path_.clear();
  tree_.Anchor(sequence.anchor);
  return sequence;
}

/// The pieces that StartOn has found, and the tail behind them.
void KvMemory::PlacePieces(Sequence& sequence) {
  uint32_t begin = 0;
  for (const PathStep& step : path_) {
    sequence.pieces.push_back({begin, tree_.SpanOf(step.node), tree_.FirstBlock(step.node), step.node});
    begin += step.blocks * kBlockTokens;
  }
  sequence.pieces.push_back({begin, sequence.tail, 0});
  while (sequence.ops_applied < sequence.ops.size() &&
         sequence.ops[sequence.ops_applied].at <= sequence.live.tokens()) {
    ++sequence.ops_applied;
  }
}

uint32_t KvMemory::Begin(RequestId id, uint64_t cache_namespace, std::span<const TokenId> tokens,
                         std::span<const CacheOp> ops, RequestId like, uint32_t reuse_max) {
  Sequence& sequence = OpenSequence(id, cache_namespace, ops);
  sequence.tail = spans_.Open(id);
  stats_.lookup_tokens += tokens.size();
  // The last token is computed, for its logits.
  const auto other = sequences_.find(like);
  const Sequence* leader = other == sequences_.end() || like == id ? nullptr : &other->second;
  const size_t reusable = tokens.empty() ? 0 : std::min<size_t>(tokens.size() - 1, reuse_max);
  if (options_.reuse && reusable > 0 && !StartOn(sequence, tokens.first(reusable), leader)) {
    // No frame for the copy of a shared block's beginning: whole blocks only.
    StartOn(sequence, tokens.first(sequence.live.tokens() / kBlockTokens * kBlockTokens), nullptr);
  }
  PlacePieces(sequence);
  if (uses_.enabled()) {
    VisitFrames(sequence, [&](FrameId frame) {
      if (tree_.Contains(frame)) uses_.Use(frame, Now());
    });
  }
  stats_.hit_tokens += sequence.live.tokens();
  return sequence.live.tokens();
}

std::vector<ReusedPart> KvMemory::ReusedParts(RequestId id) const {
  const Sequence& sequence = SequenceOf(id);
  std::vector<ReusedPart> parts;
  for (size_t i = 0; i + 1 < sequence.pieces.size(); ++i) {
    const Piece& piece = sequence.pieces[i];
    const SpanTable::Origin& origin = spans_.OriginOf(piece.span);
    parts.push_back({.tokens = sequence.pieces[i + 1].text_begin - piece.text_begin,
                     .node = piece.node.value,
                     .source = origin.source,
                     .computed_by = origin.writer,
                     .computed_at = origin.written_at});
  }
  if (sequence.copied && !sequence.open_tokens.empty()) parts.push_back(*sequence.copied);
  return parts;
}

/// References what is cached of `tokens` and needed in the view.
/// @return false when a partly matching block could not be copied; then nothing is referenced.
bool KvMemory::StartOn(Sequence& sequence, std::span<const TokenId> tokens, const Sequence* like) {
  const NodeId root = sequence.anchor;
  PrefixMatch match = FindUsable(root, {tokens, sequence.ops}, Find::kPartOfBlockToo);
  if (like != nullptr) ExtendByOpenBlock(*like, root, {tokens, sequence.ops}, match);
  return Hold(sequence, match, tokens);
}

/// As StartOn, of a match whose path was just found.
bool KvMemory::Hold(Sequence& sequence, const PrefixMatch& match, std::span<const TokenId> tokens) {
  const NodeId root = sequence.anchor;
  sequence.live = LiveText::After(match.tokens + match.partial_tokens, sequence.ops);
  const auto visit = [&](const auto& with_frame) {
    uint32_t begin = 0;
    for (const PathStep& step : path_) {
      for (uint32_t block = 0; block < step.blocks; ++block, begin += kBlockTokens) {
        if (sequence.live.AnyLive(begin, begin + kBlockTokens)) with_frame(tree_.FrameOf(step, block));
      }
    }
  };
  const auto move_anchor = [&](NodeId to) {
    tree_.Anchor(to);
    tree_.Unanchor(std::exchange(sequence.anchor, to));
  };
  visit([&](FrameId frame) { sequence.held_block_ns -= Reference(frame); });
  if (!path_.empty()) {
    path_.back().node = tree_.Cut(path_.back().node, path_.back().blocks);
    move_anchor(path_.back().node);
  }
  if (match.partial_tokens == 0 || CopyPartial(sequence, match, tokens)) return true;
  visit([&](FrameId frame) { sequence.held_block_ns += Release(frame); });
  move_anchor(root);
  return false;
}

/// Starts the tail with a copy of a block whose first tokens are those that come next.
bool KvMemory::CopyPartial(Sequence& sequence, const PrefixMatch& match, std::span<const TokenId> tokens) {
  PageEntry source = spans_.At(match.partial_span, match.partial_block);
  const SpanTable::Origin origin = spans_.OriginOf(match.partial_span);
  sequence.copied = ReusedPart{.tokens = match.partial_tokens,
                               .copied = true,
                               .node = tree_.Contains(source.frame) ? tree_.NodeOf(source.frame).value : 0,
                               .source = origin.source,
                               .computed_by = origin.writer,
                               .computed_at = origin.written_at};
  if (source.state == PageState::kOpen) source.state = PageState::kSealed;  // Nobody writes it by this name.
  // Or a frame for the copy might be taken from it.
  sequence.held_block_ns -= Reference(source.frame);
  const std::optional<FrameId> frame = TakeFrame(sequence.tail, 0);
  if (!frame) {
    sequence.held_block_ns += Release(source.frame);
    return false;
  }
  spans_.Append(sequence.tail, *frame);
  sequence.copy_source = spans_.Open();
  spans_.Append(*sequence.copy_source, source);
  sequence.copy = BlockCopy{*sequence.copy_source, 0, sequence.tail, 0};
  const std::span<const TokenId> open = tokens.subspan(match.tokens, match.partial_tokens);
  sequence.open_tokens.assign(open.begin(), open.end());
  ++stats_.copied_blocks;
  return true;
}

void KvMemory::EndCopy(Sequence& sequence) {
  if (!sequence.copy_source) return;
  sequence.held_block_ns += Release(spans_.FrameOf(*sequence.copy_source, 0));
  spans_.Release(*sequence.copy_source);
  sequence.copy_source.reset();
  sequence.copy.reset();
  ForgetDoomed();
}

std::optional<BlockCopy> KvMemory::TakeCopy(RequestId id) {
  return std::exchange(sequences_.at(id).copy, std::nullopt);
}

std::optional<FrameId> KvMemory::TakeFrame(SpanId span, uint32_t block) {
  const PageId page = MakePageId(span, 0, 0, block);
  if (const std::optional<FrameId> frame = pool_.Allocate(page)) {
    holds_.Reset(*frame);
    return frame;
  }
  // With a block go those behind it, from other buckets: what tiers have not decided about yet may have become the
  // oldest of one.
  const std::optional<FrameId> frame = pool_.TakeOldest(page, [&](FrameId cached) { return uses_.IsJudged(cached); });
  if (!frame) return std::nullopt;
  holds_.Reset(*frame);
  EvictFromTree(*frame);
  stats_.evicted_blocks += 1 + evicted_.size();
  return frame;
}

uint32_t KvMemory::ReferencesOf(FrameId frame) const {
  return IsPageTable(frame) ? split_->references(frame) : pool_.references(frame);
}

double KvMemory::Reference(FrameId frame) {
  const double integral = holds_.Fold(frame, ReferencesOf(frame));
  if (IsPageTable(frame)) {
    split_->Reference(frame);
  } else {
    pool_.Reference(frame);
  }
  return integral;
}

double KvMemory::Release(FrameId frame) {
  const double integral = holds_.Fold(frame, ReferencesOf(frame));
  if (!IsPageTable(frame)) {
    pool_.Release(frame, /*keep=*/tree_.Contains(frame));
    return integral;
  }
  if (!split_->Release(frame)) return integral;
  if (tree_.Contains(frame)) {
    EvictFromTree(frame);
    stats_.evicted_blocks += 1 + evicted_.size();
  }
  split_->Remove(frame, emptied_);
  ReleaseEmptied();
  return integral;
}

/// What goes with the frame is free then and in `evicted_`; the frame itself is the caller's.
/// @param forgotten  lower tiers are told of all that goes
void KvMemory::EvictFromTree(FrameId frame, bool forgotten) {
  const auto leave = [&](FrameId leaving) {
    if (forgotten) TellForgotten(leaving);
    if (!forgotten && !uses_.IsJudged(leaving)) ++stats_.undecided_blocks;
    book_.Erase(leaving);
    uses_.Leave(leaving);
  };
  evicted_.clear();
  tree_.Evict(frame, evicted_);
  leave(frame);
  for (const FrameId other : evicted_) {
    leave(other);
    // Else who copies from it, or moves it, frees it.
    if (!IsPageTable(other) && pool_.state(other) == FrameState::kCached) pool_.Forget(other);
  }
}

bool KvMemory::Reserve(RequestId id, uint32_t tokens_total) {
  Sequence& sequence = sequences_.at(id);
  const uint32_t held = spans_.BlocksOf(sequence.tail);
  const uint32_t wanted = BlocksFor(tokens_total - std::min(tokens_total, sequence.tail_begin()));
  if (wanted <= held) return true;
  if (wanted - held > AvailableFrames()) return false;
  for (uint32_t block = held; block < wanted; ++block) {
    const std::optional<FrameId> frame = TakeFrame(sequence.tail, block);
    KVIST_CHECK(frame.has_value());
    spans_.Append(sequence.tail, *frame);
  }
  return true;
}

void KvMemory::Commit(RequestId id, std::span<const TokenId> tokens) {
  Sequence& sequence = sequences_.at(id);
  KVIST_CHECK(tokens.size() <= TokensUntilOp(id));
  KVIST_CHECK(BlocksFor(sequence.live.tokens() + tokens.size() - sequence.tail_begin()) <=
              spans_.BlocksOf(sequence.tail));
  EndCopy(sequence);
  for (const TokenId token : tokens) {
    sequence.open_tokens.push_back(token);
    sequence.live.Advance(1);
    if (sequence.open_tokens.size() == kBlockTokens) Seal(sequence);
  }
  ApplyDueOps(sequence);
}

void KvMemory::Seal(Sequence& sequence) {
  const uint32_t begin = sequence.live.tokens() - kBlockTokens;
  spans_.Seal(sequence.tail, (begin - sequence.tail_begin()) / kBlockTokens);
  if (options_.reuse) Publish(sequence, begin);
  sequence.open_tokens.clear();
}

/// Publishes the open tokens as the block that begins at `block_begin`.
/// @return the block of a longer text that has these tokens already, where they are not taken for that reason.
FrameId KvMemory::Publish(Sequence& sequence, uint32_t block_begin) {
  const auto applied = std::span(sequence.ops).first(sequence.ops_applied);
  const auto first = std::ranges::lower_bound(applied, block_begin, {}, &CacheOp::at);
  const auto last =
      std::ranges::lower_bound(first, applied.end(), block_begin + sequence.open_tokens.size(), {}, &CacheOp::at);
  const uint32_t block = (block_begin - sequence.tail_begin()) / kBlockTokens;
  const FrameId own = spans_.FrameOf(sequence.tail, block);
  const Publication published = tree_.Publish(sequence.anchor, {sequence.open_tokens, std::span(first, last)},
                                              block_begin, sequence.tail, block, own);
  sequence.anchor = published.node;
  if (published.superseded) {
    book_.Move(*published.superseded, own);
    SetClass(own, book_.ClassOf(own));
    if (book_.IsDoomed(own)) doomed_.push_back(own);
    if (pool_.state(*published.superseded) == FrameState::kCached) pool_.Forget(*published.superseded);
  }
  const bool full = sequence.open_tokens.size() == kBlockTokens;
  if (full && published.frame == own) {
    uses_.Arrive(own, *tree_.ContentIdOf(own), Now());
    if (IsToBeForgotten(own)) TellForgotten(own);
  }
  if (published.span == sequence.tail && published.block == block) return published.covered_by;
  // Another sequence computed the same block first. Equal histories give equal bits, so one copy is enough.
  spans_.Redirect(sequence.tail, block, published.span, published.block);
  if (published.frame == own) return kNoFrame;  // It was forgotten since.
  uses_.Use(published.frame, Now());
  sequence.held_block_ns -= Reference(published.frame);
  sequence.held_block_ns += holds_.Fold(own, pool_.references(own));
  pool_.Release(own, /*keep=*/false);
  return kNoFrame;
}

void KvMemory::ApplyDueOps(Sequence& sequence) {
  while (sequence.ops_applied < sequence.ops.size() &&
         sequence.ops[sequence.ops_applied].at == sequence.live.tokens()) {
    Apply(sequence, sequence.ops[sequence.ops_applied++]);
  }
}

void KvMemory::Drop(RequestId id, const CacheOp& op) {
  Sequence& sequence = sequences_.at(id);
  KVIST_CHECK(op.at == sequence.live.tokens());
  sequence.ops.insert(sequence.ops.begin() + sequence.ops_applied, op);
  ApplyDueOps(sequence);
}

void KvMemory::Apply(Sequence& sequence, const CacheOp& op) {
  const LiveText before = sequence.live;
  sequence.live.Apply(op);
  stats_.dropped_tokens += before.live_tokens() - sequence.live.live_tokens();
  const uint32_t last = std::min(op.end, sequence.sealed());
  for (uint32_t begin = op.begin / kBlockTokens * kBlockTokens; begin < last; begin += kBlockTokens) {
    if (!before.AnyLive(begin, begin + kBlockTokens) || sequence.live.AnyLive(begin, begin + kBlockTokens)) continue;
    const FrameId frame = FrameAt(sequence, begin / kBlockTokens);
    sequence.held_block_ns += Release(frame);
    if (begin >= sequence.tail_begin() && !tree_.Contains(frame)) {
      spans_.Replace(sequence.tail, (begin - sequence.tail_begin()) / kBlockTokens, kNoFrame);
    }
  }
  ForgetDoomed();
}

FrameId KvMemory::FrameAt(const Sequence& sequence, uint32_t text_block) const {
  const auto next = std::ranges::upper_bound(sequence.pieces, text_block * kBlockTokens, {}, &Piece::text_begin);
  const Piece& piece = *std::prev(next);
  return spans_.FrameOf(piece.span, piece.first_block + text_block - piece.text_begin / kBlockTokens);
}

template <class Visit>
void KvMemory::VisitFrames(const Sequence& sequence, const Visit& visit) const {
  const uint32_t sealed = sequence.sealed();
  uint32_t block = sequence.tail_begin() / kBlockTokens + spans_.BlocksOf(sequence.tail);
  while (block-- > 0) {
    const uint32_t begin = block * kBlockTokens;
    if (begin >= sealed || sequence.live.AnyLive(begin, begin + kBlockTokens)) visit(FrameAt(sequence, block));
  }
}

RetainOutcome KvMemory::End(RequestId id, const Farewell& farewell) {
  const auto it = sequences_.find(id);
  KVIST_CHECK(it != sequences_.end());
  Sequence& sequence = it->second;
  const bool written = !sequence.copy_source;  // Else nothing of the open block was: the copy was never made.
  EndCopy(sequence);
  FrameId covered_by = kNoFrame;
  if (options_.reuse && written && !sequence.open_tokens.empty()) {
    spans_.Seal(sequence.tail, (sequence.sealed() - sequence.tail_begin()) / kBlockTokens);
    covered_by = Publish(sequence, sequence.sealed());
  }
  RetainOutcome outcome = Retain(sequence, covered_by, farewell);
  // Deepest first: a block is then always forgotten before the blocks that it follows.
  VisitFrames(sequence, [&](FrameId frame) { sequence.held_block_ns += Release(frame); });
  outcome.held_block_ns = sequence.held_block_ns;
  tree_.Touch(sequence.anchor, farewell.now);
  tree_.Unanchor(sequence.anchor);
  spans_.SetWritten(sequence.tail, farewell.now);
  spans_.Release(sequence.tail);
  sequences_.erase(it);
  ForgetDoomed();
  return outcome;
}

double KvMemory::HeldBlockNs(RequestId id) const {
  const Sequence& sequence = SequenceOf(id);
  double held = sequence.held_block_ns;
  const auto add = [&](FrameId frame) { held += holds_.Value(frame, ReferencesOf(frame)); };
  VisitFrames(sequence, add);
  if (sequence.copy_source) add(spans_.FrameOf(*sequence.copy_source, 0));
  return held;
}

void KvMemory::AppendView(RequestId id, uint32_t new_tokens, std::vector<Segment>& out) const {
  const Sequence& sequence = SequenceOf(id);
  const auto append = [&](uint32_t begin, uint32_t end, int32_t shift) {
    auto piece = std::prev(std::ranges::upper_bound(sequence.pieces, begin, {}, &Piece::text_begin));
    while (begin < end) {
      const auto next = std::next(piece);
      const uint32_t until = next == sequence.pieces.end() ? end : std::min(end, next->text_begin);
      if (begin < until) {
        const uint32_t first = piece->first_block * kBlockTokens + begin - piece->text_begin;
        out.push_back({piece->span, first, until - begin, shift});
      }
      begin = until;
      piece = next;
    }
  };
  const uint32_t computed = sequence.live.tokens();
  bool joined = false;
  for (const LiveRange& range : sequence.live.ranges()) {
    joined = range.end == computed && range.shift == 0;
    append(range.begin, joined ? computed + new_tokens : range.end, range.shift);
  }
  if (!joined) append(computed, computed + new_tokens, 0);
}

uint32_t KvMemory::TailTokens(RequestId id) const {
  const Sequence& sequence = SequenceOf(id);
  return sequence.live.tokens() - sequence.tail_begin();
}

uint32_t KvMemory::TokensUntilOp(RequestId id) const {
  const Sequence& sequence = SequenceOf(id);
  if (sequence.ops_applied == sequence.ops.size()) return UINT32_MAX;
  return sequence.ops[sequence.ops_applied].at - sequence.live.tokens();
}

uint32_t KvMemory::BlocksHeld(RequestId id) const {
  return SequenceOf(id).tail_begin() / kBlockTokens + BlocksOwn(id);
}

uint32_t KvMemory::BlocksOwn(RequestId id) const {
  return spans_.BlocksOf(SequenceOf(id).tail);
}

MemoryFigures KvMemory::Figures() const {
  MemoryFigures figures{.frames = counts(),
                        .totals = stats_,
                        .low = book_.count(Retention::kLow),
                        .high = book_.count(Retention::kHigh),
                        .pinned = book_.count(Retention::kPinned),
                        .pins_max = book_.pins_max()};
  for (const auto& [id, sequence] : sequences_) {
    const LiveText& live = sequence.live;
    const uint32_t tokens = live.tokens(), last = tokens / kBlockTokens * kBlockTokens;
    const uint32_t beyond = tokens > last && live.AnyLive(last, tokens) ? last + kBlockTokens - tokens : 0;
    figures.empty_slots += uint64_t{BlocksOwn(id)} * kBlockTokens - (tokens - sequence.tail_begin());
    figures.dropped_slots += uint64_t{live.LiveBlocks()} * kBlockTokens - live.live_tokens() - beyond;
  }
  return figures;
}

void KvMemory::CheckInvariants() const {
  pool_.CheckInvariants();
  tree_.CheckInvariants();
  if (split_) split_->CheckInvariants();
  std::vector<uint32_t> references(frames_count(), 0);
  absl::flat_hash_map<FrameId, uint32_t> of_tables;
  const auto count = [&](FrameId frame) { ++(IsPageTable(frame) ? of_tables[frame] : references[frame.value]); };
  for (const auto& [id, sequence] : sequences_) {
    VisitFrames(sequence, count);
    if (sequence.copy_source) count(spans_.FrameOf(*sequence.copy_source, 0));
  }
  for (const Move& move : moves_) {
    count(move.table);
    count(spans_.FrameOf(move.copy.target, 0));
  }
  if (split_) {
    for (const auto& [frame, in_use] : split_->slots().frames()) ++references[frame.value];
    KVIST_CHECK(of_tables.size() == split_->tables_count());
  }
  for (const auto& [table, expected] : of_tables) KVIST_CHECK(split_->references(table) == expected);
  for (uint32_t i = 0; i < frames_count(); ++i) {
    KVIST_CHECK(pool_.references(FrameId{i}) == references[i]);
    const bool kept = tree_.Contains(FrameId{i});
    KVIST_CHECK(pool_.state(FrameId{i}) != FrameState::kFree || !kept);
    KVIST_CHECK(pool_.state(FrameId{i}) != FrameState::kCached || kept);
    const Retention retention = book_.ClassOf(FrameId{i});
    KVIST_CHECK(kept ? pool_.retention(FrameId{i}) == retention : retention == Retention::kNormal);
    const FrameState state = pool_.state(FrameId{i});
    KVIST_CHECK(!book_.IsDoomed(FrameId{i}) || state == FrameState::kReferenced || state == FrameState::kStoring);
  }
  book_.CheckInvariants();
}

}  // namespace kvist::kv
