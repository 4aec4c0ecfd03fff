#include "kv/kv_memory.h"

#include <algorithm>

#include "base/check.h"

namespace kvist::kv {

KvMemory::KvMemory(const KvMemoryOptions& options)
    : options_(options), pool_(options.frames_count), index_(options.frames_count) {}

uint32_t KvMemory::Begin(RequestId id, uint64_t cache_namespace, std::span<const TokenId> tokens) {
  auto [it, inserted] = sequences_.try_emplace(id);
  KVIST_CHECK(inserted);
  Sequence& sequence = it->second;
  sequence.span = spans_.Open();
  sequence.chain = ChainRoot(cache_namespace);
  stats_.lookup_tokens += tokens.size();
  if (!options_.reuse || tokens.empty()) return 0;

  std::optional<FrameId> parent;
  size_t usable_blocks = (tokens.size() - 1) / kBlockTokens;  // The last token is computed, for its logits.
  for (size_t block = 0; block < usable_blocks; ++block) {
    auto block_tokens = tokens.subspan(block * kBlockTokens, kBlockTokens);
    ContentId content = ChainNext(sequence.chain, block_tokens);
    std::optional<FrameId> frame = index_.Find(content, parent, block_tokens);
    if (!frame) break;
    pool_.Reference(*frame);
    spans_.Append(sequence.span, *frame);
    sequence.chain = content;
    sequence.committed += kBlockTokens;
    parent = frame;
  }
  stats_.hit_tokens += sequence.committed;
  return sequence.committed;
}

std::optional<FrameId> KvMemory::TakeFrame() {
  if (pool_.counts().free == 0) {
    std::optional<FrameId> victim = pool_.Oldest();
    if (!victim) return std::nullopt;
    index_.Remove(*victim);
    pool_.Forget(*victim);
    ++stats_.forgotten_blocks;
  }
  return pool_.Allocate();
}

bool KvMemory::Reserve(RequestId id, uint32_t tokens_total) {
  Sequence& sequence = sequences_.at(id);
  uint32_t held = static_cast<uint32_t>(spans_.Frames(sequence.span).size());
  uint32_t wanted = BlocksFor(tokens_total);
  if (wanted <= held) return true;
  if (wanted - held > AvailableFrames()) return false;
  for (uint32_t block = held; block < wanted; ++block) {
    std::optional<FrameId> frame = TakeFrame();
    KVIST_CHECK(frame.has_value());
    spans_.Append(sequence.span, *frame);
  }
  return true;
}

void KvMemory::Commit(RequestId id, std::span<const TokenId> tokens) {
  Sequence& sequence = sequences_.at(id);
  KVIST_CHECK(BlocksFor(sequence.committed + tokens.size()) <= spans_.Frames(sequence.span).size());
  for (TokenId token : tokens) {
    sequence.open_tokens.push_back(token);
    ++sequence.committed;
    if (sequence.open_tokens.size() == kBlockTokens) Seal(sequence);
  }
}

void KvMemory::Seal(Sequence& sequence) {
  ContentId content = ChainNext(sequence.chain, sequence.open_tokens);
  if (options_.reuse) {
    const std::vector<FrameId>& frames = spans_.Frames(sequence.span);
    uint32_t block = sequence.committed / kBlockTokens - 1;
    std::optional<FrameId> parent;
    if (block > 0) parent = frames[block - 1];
    FrameId own = frames[block];
    if (std::optional<FrameId> other = index_.Find(content, parent, sequence.open_tokens)) {
      // Another sequence computed the same block first. Equal histories give equal bits, so one copy is enough.
      pool_.Reference(*other);
      spans_.Replace(sequence.span, block, *other);
      pool_.Release(own, /*keep=*/false);
    } else {
      index_.Insert(content, parent, sequence.open_tokens, own);
    }
  }
  sequence.chain = content;
  sequence.open_tokens.clear();
}

void KvMemory::End(RequestId id) {
  auto it = sequences_.find(id);
  KVIST_CHECK(it != sequences_.end());
  const std::vector<FrameId>& frames = spans_.Frames(it->second.span);
  // Deepest first: a block is then always forgotten before the blocks that it follows.
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    pool_.Release(*frame, /*keep=*/index_.Contains(*frame));
  }
  spans_.Close(it->second.span);
  sequences_.erase(it);
}

SpanId KvMemory::SpanOf(RequestId id) const {
  return sequences_.at(id).span;
}

uint32_t KvMemory::CommittedTokens(RequestId id) const {
  return sequences_.at(id).committed;
}

uint32_t KvMemory::BlocksHeld(RequestId id) const {
  return static_cast<uint32_t>(spans_.Frames(sequences_.at(id).span).size());
}

void KvMemory::CheckInvariants() const {
  pool_.CheckInvariants();
  std::vector<uint32_t> references(frames_count(), 0);
  for (const auto& [id, sequence] : sequences_) {
    for (FrameId frame : spans_.Frames(sequence.span)) ++references[frame.value];
  }
  uint32_t indexed = 0;
  for (uint32_t i = 0; i < frames_count(); ++i) {
    KVIST_CHECK(pool_.references(FrameId{i}) == references[i]);
    bool present = index_.Contains(FrameId{i});
    KVIST_CHECK(pool_.state(FrameId{i}) != FrameState::kFree || !present);
    KVIST_CHECK(pool_.state(FrameId{i}) != FrameState::kCached || present);
    indexed += present ? 1 : 0;
  }
  KVIST_CHECK(indexed == index_.size() && sequences_.size() == spans_.open_count());
}

}  // namespace kvist::kv
