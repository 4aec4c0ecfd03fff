/// Random programs of requests, shared beginnings, drops, cancels, evictions, and blocks that are split, moved page by
/// page and put together again, against an oracle that knows what every token's keys and values must be: a function of
/// the namespace, the tokens before it and the operations before it. The "device" stores that value (and the rotary
/// position) per page and slot, so a wrong match, a lost copy, a frame given away too early, a page in the wrong place
/// or a wrong shift shows as a wrong value in somebody's view. With wishes for how long blocks stay, the oracle also
/// knows which beginnings of texts are pinned, and must be found whole. With tiers, blocks of texts come into frames
/// from elsewhere while everything else goes on, some of them in vain, and frames that are copied elsewhere must stay
/// as they are until that is done.

#include <gtest/gtest.h>

#include <map>

#include "base/prng.h"
#include "kv/kv_memory.h"

namespace kvist::kv {
namespace {

struct Slot {
  uint64_t value = 0;
  uint32_t position = 0;
};

struct Text {
  uint64_t cache_namespace = 0;
  std::vector<TokenId> tokens;
  std::vector<CacheOp> ops;
};

/// The value of token `index`: what it was computed from.
uint64_t ValueOf(const Text& text, uint32_t index) {
  uint64_t hash = Mix64(text.cache_namespace);
  size_t op = 0;
  for (uint32_t i = 0; i <= index; ++i) {
    for (; op < text.ops.size() && text.ops[op].at == i; ++op) {
      hash = Mix64(hash ^ (uint64_t{text.ops[op].begin} << 32 | text.ops[op].end << 1 | text.ops[op].reposition));
    }
    hash = Mix64(hash ^ text.tokens[i].value);
  }
  return hash;
}

struct Token {
  uint32_t index;
  int64_t position;  ///< That its key should seem to have.
};

/// The view after `count` tokens, token by token.
std::vector<Token> ViewOf(const Text& text, uint32_t count, uint32_t* next_position) {
  std::vector<Token> view;
  int64_t position = 0;
  size_t op = 0;
  for (uint32_t i = 0; i <= count; ++i) {
    for (; op < text.ops.size() && text.ops[op].at == i; ++op) {
      const CacheOp& o = text.ops[op];
      std::vector<Token> kept;
      int64_t gone = 0;
      for (const Token& token : view) {
        if (token.index >= o.begin && token.index < o.end) {
          ++gone;
        } else {
          kept.push_back({token.index, token.position - (o.reposition ? gone : 0)});
        }
      }
      view = kept;
      if (o.reposition) position -= gone;
    }
    if (i < count) view.push_back({i, position++});
  }
  *next_position = static_cast<uint32_t>(position);
  return view;
}

struct WorldOptions {
  uint32_t frames = 300;
  bool drops = false, wishes = false, splits = false, tiers = false;
};

class World {
 public:
  World(uint64_t seed, const WorldOptions& options)
      : prng_(seed),
        drops_(options.drops),
        wishes_(options.wishes),
        splits_(options.splits),
        tiers_(options.tiers),
        memory_({.frames_count = options.frames, .layout = kLayout, .uses_remembered = options.tiers ? 50u : 0u}),
        device_(size_t{options.frames} * kLayout.pages() * kBlockTokens) {}

  void Step() {
    if (wishes_) {
      now_ = now_ + static_cast<int64_t>(prng_.Below(4));
      memory_.Expire(now_);
      if (!splits_) CheckPins();  // What is split does not stay.
    }
    if (tiers_ && prng_.Below(3) == 0) MoveTiers();
    switch (prng_.Below(splits_ ? 9 : 6)) {
      case 0:
        if (live_.size() < 6) Begin();
        break;
      case 1:
        if (!live_.empty()) End();
        break;
      case 2:
        if (drops_ && !live_.empty()) DropNow();
        break;
      case 6:
      case 7:
        if (!live_.empty()) SplitOrMove();
        break;
      case 8:
        if (!moves_.empty()) FinishMove();
        break;
      default:
        if (!live_.empty()) Compute();
    }
    memory_.CheckInvariants();
    for (const auto& [id, sequence] : live_) CheckView(id, sequence);
  }

  void Finish() {
    while (!live_.empty()) End();
    memory_.CheckInvariants();
    while (!moves_.empty()) FinishMove();
    memory_.CheckInvariants();
    while (!loads_.empty()) EndLoad();
    while (!held_.empty()) EndHeld();
    while (!stores_.empty()) EndStore();
    memory_.CheckInvariants();
    const FrameCounts counts = memory_.counts();
    EXPECT_EQ(counts.referenced + counts.loading + counts.storing, 0u);
  }

  uint64_t hits() const { return memory_.stats().hit_tokens; }
  uint64_t copies() const { return memory_.stats().copied_blocks; }
  uint64_t holes_passed() const { return holes_passed_; }
  uint64_t forks() const { return forks_; }  ///< That share a block under way with a live sequence.
  uint64_t pins_found() const { return pins_found_; }
  uint64_t moved() const { return moved_; }
  uint64_t merged() const { return merged_; }
  uint64_t loaded() const { return loaded_; }
  uint64_t stored() const { return stored_; }

 private:
  struct Sequence {
    Text text;  ///< All that will be computed.
    uint32_t computed = 0;
    bool copied = true;  ///< No copy is pending.
  };

  Sequence& Any(uint64_t* id) {
    const auto it = std::next(live_.begin(), static_cast<std::ptrdiff_t>(prng_.Below(live_.size())));
    *id = it->first;
    return it->second;
  }

  /// A new text, or one that goes on from what another sequence has computed or will.
  /// @param like  set to a live sequence that the text was taken from, or to just any.
  Text NewText(uint64_t* like) {
    Text text;
    text.cache_namespace = prng_.Below(2);
    const bool fork = !live_.empty() && prng_.Below(3) == 0;
    if (!live_.empty()) Any(like);
    if (fork || (!finished_.empty() && prng_.Below(3) > 0)) {
      text = fork ? live_.at(*like).text : finished_[prng_.Below(finished_.size())];
      const uint32_t keep = static_cast<uint32_t>(prng_.Below(text.tokens.size() + 1));
      if (prng_.Below(2) == 0) {
        text.tokens.resize(keep);
        std::erase_if(text.ops, [&](const CacheOp& op) { return op.at > keep; });
      }
      if (drops_ && prng_.Below(4) == 0) text.ops.clear();  // The same tokens with another history.
    }
    const uint32_t more = 1 + static_cast<uint32_t>(prng_.Below(40));
    if (drops_ && text.tokens.size() > 4 && prng_.Below(3) == 0) AddOp(text, static_cast<uint32_t>(text.tokens.size()));
    for (uint32_t i = 0; i < more; ++i) text.tokens.push_back(TokenId{static_cast<uint32_t>(prng_.Below(2))});
    if (text.tokens.size() > 160) text.tokens.resize(160);
    std::erase_if(text.ops, [&](const CacheOp& op) { return op.at > text.tokens.size(); });
    return text;
  }

  void AddOp(Text& text, uint32_t at) {
    if (at < 2 || (!text.ops.empty() && text.ops.back().at > at)) return;
    CacheOp op{.at = at, .reposition = prng_.Below(4) > 0};
    op.begin = static_cast<uint32_t>(prng_.Below(at));
    op.end = op.begin + 1 + static_cast<uint32_t>(prng_.Below(at - op.begin));
    text.ops.push_back(op);
  }

  void Begin() {
    const uint64_t id = next_id_++;
    uint64_t like = 0;
    Sequence sequence{.text = NewText(&like)};
    sequence.computed = memory_.Begin(RequestId{id}, sequence.text.cache_namespace, sequence.text.tokens,
                                      sequence.text.ops, RequestId{like});
    const auto source = live_.find(like);
    if (source != live_.end() && sequence.computed % kBlockTokens != 0 &&
        sequence.computed <= source->second.computed &&
        std::ranges::equal(std::span(source->second.text.tokens).first(sequence.computed),
                           std::span(sequence.text.tokens).first(sequence.computed))) {
      ++forks_;
    }
    ASSERT_LT(sequence.computed, sequence.text.tokens.size());
    if (sequence.computed > 0 && !sequence.text.ops.empty()) ++holes_passed_;
    sequence.copied = false;
    live_.emplace(id, std::move(sequence));
  }

  void Compute() {
    uint64_t id;
    Sequence& sequence = Any(&id);
    const RequestId request{id};
    const uint32_t left = static_cast<uint32_t>(sequence.text.tokens.size()) - sequence.computed;
    if (left == 0) return;
    const uint32_t count = std::min(1 + static_cast<uint32_t>(prng_.Below(left)), memory_.TokensUntilOp(request));
    if (!memory_.Reserve(request, sequence.computed + count)) return;
    if (const std::optional<BlockCopy> copy = memory_.TakeCopy(request)) Copy(*copy);
    sequence.copied = true;
    const uint32_t tail = memory_.TailTokens(request), position = memory_.NextPosition(request);
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t value = ValueOf(sequence.text, sequence.computed + i);
      for (uint32_t page = 0; page < kLayout.pages(); ++page) {
        Slot* slot = At(memory_.SpanOf(request), tail + i, page);
        ASSERT_NE(slot, nullptr);
        *slot = {Mix64(value + page), position + i};
      }
    }
    memory_.Commit(request, std::span(sequence.text.tokens).subspan(sequence.computed, count));
    sequence.computed += count;
  }

  void DropNow() {
    uint64_t id;
    Sequence& sequence = Any(&id);
    if (!sequence.copied || sequence.computed < 2) return;
    const auto later =
        std::ranges::find_if(sequence.text.ops, [&](const CacheOp& op) { return op.at > sequence.computed; });
    if (later != sequence.text.ops.end()) return;
    AddOp(sequence.text, sequence.computed);
    if (!sequence.text.ops.empty() && sequence.text.ops.back().at == sequence.computed &&
        memory_.CommittedTokens(RequestId{id}) == sequence.computed) {
      if (applied_[id] == sequence.text.ops.size()) return;
      applied_[id] = sequence.text.ops.size();
      memory_.Drop(RequestId{id}, sequence.text.ops.back());
    }
  }

  std::vector<RetainRange> Wishes(uint32_t computed) {
    std::vector<RetainRange> wishes;
    for (uint64_t count = wishes_ ? prng_.Below(4) : 0; count > 0; --count) {
      RetainRange range{.begin = static_cast<uint32_t>(prng_.Below(computed + 1)),
                        .retention = static_cast<Retention>(prng_.Below(kRetentions)),
                        .for_ns = prng_.Below(4) == 0 ? kForeverNs : static_cast<int64_t>(prng_.Below(60))};
      if (prng_.Below(2) == 0) range.end = range.begin + 1 + static_cast<uint32_t>(prng_.Below(computed + 1));
      range.forget = range.for_ns != kForeverNs && prng_.Below(3) == 0;
      wishes.push_back(range);
    }
    return wishes;
  }

  void End() {
    uint64_t id;
    Sequence& sequence = Any(&id);
    const std::vector<RetainRange> wishes = Wishes(sequence.computed);
    const RetainOutcome outcome = memory_.End(RequestId{id}, {.retain = wishes, .now = now_});
    sequence.text.tokens.resize(sequence.computed);
    std::erase_if(sequence.text.ops, [&](const CacheOp& op) { return op.at > sequence.computed; });
    for (const RetainRange& range : wishes) {
      const uint32_t end = std::min(range.end, sequence.computed);
      if (range.retention != Retention::kPinned || range.begin >= end || range.for_ns == 0) continue;
      const bool dropped = std::ranges::any_of(
          sequence.text.ops, [&](const CacheOp& op) { return op.at > end && op.begin < end; });  // After the range.
      // What was dropped may be gone before the end; then nobody finds the way to an operation right after it.
      const bool at_end =
          !sequence.text.ops.empty() && sequence.text.ops.back().at >= end / kBlockTokens * kBlockTokens;
      if (outcome.not_pinned_blocks > 0 || dropped || at_end) continue;
      Pin pin{sequence.text, range.for_ns == kForeverNs ? kTimeNever : now_ + range.for_ns};
      pin.text.tokens.resize(end);
      std::erase_if(pin.text.ops, [&](const CacheOp& op) { return op.at > end; });
      pins_.push_back(std::move(pin));
    }
    if (sequence.computed > 0) finished_.push_back(sequence.text);
    if (finished_.size() > 20) finished_.erase(finished_.begin());
    live_.erase(id);
  }

  /// What is pinned is found, whatever the others have done.
  void CheckPins() {
    if (prng_.Below(100) == 0) {
      memory_.YieldPins(UINT32_MAX, now_);
      pins_.clear();
    }
    std::erase_if(pins_, [&](const Pin& pin) { return pin.until <= now_; });
    if (pins_.empty() || memory_.AvailableFrames() == 0) return;  // The end of a text is copied.
    Text text = pins_[prng_.Below(pins_.size())].text;
    const size_t whole_blocks = text.tokens.size() / kBlockTokens * kBlockTokens;
    text.tokens.push_back(TokenId{7});
    const RequestId probe{next_id_++};
    ASSERT_GE(memory_.Begin(probe, text.cache_namespace, text.tokens, text.ops), whole_blocks);
    memory_.End(probe, {.now = now_});
    ++pins_found_;
  }

  void MoveTiers() {
    switch (prng_.Below(5)) {
      case 0:
        return BeginLoad();
      case 1:
        if (!loads_.empty()) EndLoad();
        return;
      case 2:
        if (!held_.empty()) EndHeld();
        return;
      case 3:
        return BeginStore();
      default:
        if (!stores_.empty()) EndStore();
    }
  }

  void BeginLoad() {
    uint64_t like = 0;
    Load load{.id = next_id_++, .text = NewText(&like)};
    const size_t whole = load.text.tokens.size() / kBlockTokens * kBlockTokens;
    load.text.tokens.resize(whole);
    if (whole == 0) return;
    load.begin = memory_.CachedBeginning(load.text.cache_namespace, load.text.tokens, load.text.ops).tokens;
    if (!memory_.BeginLoad(RequestId{load.id}, load.text.cache_namespace, load.text.tokens, load.text.ops,
                           BlockSource::kDrive, load.frames)) {
      return;
    }
    ASSERT_EQ(load.begin + load.frames.size() * kBlockTokens, whole);
    for (const FrameId frame : load.frames) {  // Anything may stand there until all is there.
      for (Slot& slot : BytesOf(frame)) slot = {prng_.Next(), 0};
    }
    loads_.push_back(std::move(load));
  }

  void EndLoad() {
    const Load load = std::move(loads_.front());
    loads_.erase(loads_.begin());
    const auto blocks = static_cast<uint32_t>(prng_.Below(load.frames.size() + 1));
    for (uint32_t i = 0; i < blocks * kBlockTokens; ++i) {
      const uint32_t index = load.begin + i;
      uint32_t position = 0;
      ViewOf(load.text, index, &position);
      const uint64_t value = ValueOf(load.text, index);
      for (uint32_t page = 0; page < kLayout.pages(); ++page) {
        BytesOf(load.frames[i / kBlockTokens])[page * kBlockTokens + i % kBlockTokens] = {Mix64(value + page),
                                                                                          position};
      }
    }
    memory_.EndLoad(RequestId{load.id}, load.text.tokens, blocks, now_);
    held_.push_back(load.id);
    loaded_ += blocks;
  }

  void EndHeld() {
    memory_.End(RequestId{held_.front()}, {.now = now_});
    held_.erase(held_.begin());
  }

  void BeginStore() {
    std::vector<KvMemory::Storable> blocks;
    if (prng_.Below(2) == 0) {
      memory_.AppendOldest(4, blocks);
    } else if (uint64_t id; !live_.empty()) {
      Any(&id);
      memory_.AppendText(RequestId{id}, blocks);
    }
    for (const KvMemory::Storable& block : blocks) {
      memory_.SetJudged(block.frame);
      if (prng_.Below(2) == 0) continue;
      memory_.BeginStore(block.frame);
      const std::span<Slot> bytes = BytesOf(block.frame);
      stores_.push_back({block.frame, {bytes.begin(), bytes.end()}});
    }
  }

  void EndStore() {
    const size_t chosen = prng_.Below(stores_.size());
    const Store store = std::move(stores_[chosen]);
    stores_.erase(stores_.begin() + static_cast<ptrdiff_t>(chosen));
    ASSERT_TRUE(std::ranges::equal(BytesOf(store.frame), store.bytes, {}, &Slot::value, &Slot::value));
    memory_.EndStore(store.frame);
    ++stored_;
  }

  std::span<Slot> BytesOf(FrameId frame) {
    const size_t slots = size_t{kLayout.pages()} * kBlockTokens;
    return std::span(device_).subspan(frame.value * slots, slots);
  }

  /// A block that somebody sees is split, or some or all of its pages go elsewhere.
  void SplitOrMove() {
    uint64_t id;
    Sequence& sequence = Any(&id);
    std::vector<Segment> view;
    memory_.AppendView(RequestId{id}, 0, view);
    if (view.empty() || !sequence.copied) return;
    const Segment& segment = view[prng_.Below(view.size())];
    if (segment.tokens_count == 0) return;
    const uint32_t block =
        static_cast<uint32_t>(segment.token_begin + prng_.Below(segment.tokens_count)) / kBlockTokens;
    if (memory_.spans().At(segment.span, block).state != PageState::kSplit) {
      memory_.SplitBlock(segment.span, block);
      return;
    }
    std::vector<uint32_t> pages;
    for (uint32_t page = 0; page < kLayout.pages(); ++page) {
      if (prng_.Below(2) == 0) pages.push_back(page);
    }
    const bool merge = prng_.Below(2) == 0;
    const std::optional<BlockCopy> copy =
        merge ? memory_.MergeBlock(segment.span, block) : memory_.MovePages(segment.span, block, pages);
    if (!copy) return;
    Copy(*copy);
    moves_.push_back(*copy);
    ++(merge ? merged_ : moved_);
  }

  void FinishMove() {
    memory_.FinishMove(moves_.front());
    moves_.erase(moves_.begin());
  }

  void Copy(const BlockCopy& copy) {
    for (uint32_t page = 0; page < kLayout.pages(); ++page) {
      for (uint32_t i = 0; i < kBlockTokens; ++i) {
        Slot* target = At(copy.target, copy.target_block * kBlockTokens + i, page);
        const Slot* source = At(copy.source, copy.source_block * kBlockTokens + i, page);
        if (target != nullptr && source != nullptr) *target = *source;
      }
    }
  }

  /// Null where the page has no place.
  Slot* At(SpanId span, uint32_t token, uint32_t page) {
    PageEntry entry = memory_.spans().At(span, token / kBlockTokens);
    if (entry.state == PageState::kSplit) {
      entry = memory_.spans().PagesOf(entry.frame)[page];
    } else {
      entry.slot = static_cast<uint16_t>(page);
    }
    if (entry.frame == kNoFrame) return nullptr;
    return &device_.at((size_t{entry.frame.value} * kLayout.pages() + entry.slot) * kBlockTokens +
                       token % kBlockTokens);
  }

  void CheckView(uint64_t id, const Sequence& sequence) {
    if (!sequence.copied) return;
    std::vector<Segment> segments;
    memory_.AppendView(RequestId{id}, 0, segments);
    uint32_t next = 0;
    const std::vector<Token> expected = ViewOf(sequence.text, sequence.computed, &next);
    ASSERT_EQ(memory_.NextPosition(RequestId{id}), next);
    ASSERT_EQ(memory_.LiveTokens(RequestId{id}), expected.size());
    size_t i = 0;
    for (const Segment& segment : segments) {
      for (uint32_t t = 0; t < segment.tokens_count; ++t, ++i) {
        ASSERT_LT(i, expected.size());
        const uint64_t value = ValueOf(sequence.text, expected[i].index);
        for (uint32_t page = 0; page < kLayout.pages(); ++page) {
          const Slot* slot = At(segment.span, segment.token_begin + t, page);
          ASSERT_NE(slot, nullptr);
          ASSERT_EQ(slot->value, Mix64(value + page)) << "token " << expected[i].index;
          ASSERT_EQ(int64_t{slot->position} + segment.position_shift, expected[i].position)
              << "token " << expected[i].index;
        }
      }
    }
    ASSERT_EQ(i, expected.size());
  }

  /// Keys and values of one head in two layers: pages of two sizes.
  inline static const PageLayout kLayout = PageLayout::Dense(KvType::kQ8, 2, 1, 33, 1);

  Prng prng_;
  struct Pin {
    Text text;
    TimeNs until;
  };
  struct Load {
    uint64_t id;
    Text text;
    uint32_t begin = 0;
    std::vector<FrameId> frames = {};
  };
  struct Store {
    FrameId frame;
    std::vector<Slot> bytes;
  };
  bool drops_, wishes_, splits_, tiers_;
  std::vector<Load> loads_;
  std::vector<uint64_t> held_;  ///< Loads that are done, and not ended.
  std::vector<Store> stores_;
  uint64_t loaded_ = 0, stored_ = 0;
  TimeNs now_{1};
  std::vector<Pin> pins_;
  uint64_t pins_found_ = 0;
  KvMemory memory_;
  std::vector<Slot> device_;
  std::map<uint64_t, Sequence> live_;
  std::map<uint64_t, size_t> applied_;
  std::vector<Text> finished_;
  std::vector<BlockCopy> moves_;
  uint64_t next_id_ = 1, holes_passed_ = 0, forks_ = 0, moved_ = 0, merged_ = 0;
};

void RunToEnd(World& world, uint64_t seed, int steps = 400) {
  for (int step = 0; step < steps && !testing::Test::HasFatalFailure(); ++step) world.Step();
  ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  world.Finish();
}

TEST(KvMemoryProgram, ViewsHoldWhatWasComputedForThem) {
  uint64_t hits = 0, copies = 0, forks = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    World world(seed, {.frames = seed % 2 == 0 ? 24u : 300u});
    ASSERT_NO_FATAL_FAILURE(RunToEnd(world, seed));
    hits += world.hits();
    copies += world.copies();
    forks += world.forks();
  }
  EXPECT_GT(hits, 10000u);
  EXPECT_GT(copies, 100u);
  EXPECT_GT(forks, 100u);
}

TEST(KvMemoryProgram, ViewsHoldWhatWasComputedForThemWithOperations) {
  uint64_t hits = 0, passed = 0;
  for (uint64_t seed = 100; seed < 160; ++seed) {
    World world(seed, {.frames = seed % 2 == 0 ? 24u : 300u, .drops = true});
    ASSERT_NO_FATAL_FAILURE(RunToEnd(world, seed));
    hits += world.hits();
    passed += world.holes_passed();
  }
  EXPECT_GT(hits, 10000u);
  EXPECT_GT(passed, 100u);
}

TEST(KvMemoryProgram, WhatIsPinnedIsFoundWhateverOthersWish) {
  uint64_t hits = 0, found = 0;
  for (uint64_t seed = 200; seed < 280; ++seed) {
    World world(seed, {.frames = seed % 2 == 0 ? 24u : 60u, .drops = seed % 4 < 2, .wishes = true});
    ASSERT_NO_FATAL_FAILURE(RunToEnd(world, seed));
    hits += world.hits();
    found += world.pins_found();
  }
  EXPECT_GT(hits, 10000u);
  EXPECT_GT(found, 3000u);
}

TEST(KvMemoryProgram, ViewsHoldWhatWasComputedForThemWithSplitBlocks) {
  uint64_t hits = 0, moved = 0, merged = 0;
  for (uint64_t seed = 300; seed < 420; ++seed) {
    World world(seed,
                {.frames = seed % 2 == 0 ? 24u : 300u, .drops = seed % 3 == 0, .wishes = seed % 5 < 2, .splits = true});
    ASSERT_NO_FATAL_FAILURE(RunToEnd(world, seed, 600));
    hits += world.hits();
    moved += world.moved();
    merged += world.merged();
  }
  EXPECT_GT(hits, 10000u);
  EXPECT_GT(moved, 500u);
  EXPECT_GT(merged, 500u);
}

TEST(KvMemoryProgram, ViewsHoldWhatWasComputedForThemWhileBlocksComeAndGo) {
  uint64_t hits = 0, loaded = 0, stored = 0;
  for (uint64_t seed = 500; seed < 620; ++seed) {
    World world(seed, {.frames = seed % 2 == 0 ? 40u : 300u,
                       .drops = seed % 3 == 0,
                       .wishes = seed % 5 < 2,
                       .splits = seed % 4 == 0,
                       .tiers = true});
    ASSERT_NO_FATAL_FAILURE(RunToEnd(world, seed));
    hits += world.hits();
    loaded += world.loaded();
    stored += world.stored();
  }
  EXPECT_GT(hits, 10000u);
  EXPECT_GT(loaded, 2000u);
  EXPECT_GT(stored, 1000u);
}

}  // namespace
}  // namespace kvist::kv
