#include "engine/engine_tier.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kvist::engine {
namespace {

/// Sequences of loads are nobody's requests.
constexpr uint64_t kLoadIds = uint64_t{1} << 63;
/// A tier is asked what it has done this often; reads are waited for, writes are not.
constexpr int64_t kLoadTurnNs = 200'000, kStoreTurnNs = 2'000'000;
/// Stores are waited for, too, so long after somebody was held back by them.
constexpr int64_t kHurryNs = 50'000'000;
/// A fetch waits so long for blocks to be decided about that it would push out: others may want frames as fast.
constexpr int64_t kPatienceNs = 500'000'000;
/// Of the blocks that would be given up next, so many times as many are decided about as frames are wanted.
constexpr uint32_t kUneven = 4;
/// Frames that may be written at once in the smallest pool.
constexpr uint64_t kStoringMin = 4;
/// Tenants whose namespaces are remembered; salts make many.
constexpr size_t kNamespacesMax = 1 << 16;

}  // namespace

TierMover::TierMover(kv::KvMemory& memory, kv::ColdBlocks& cold, kv::AdmissionPolicy& admission,
                     const TierOptions& options)
    : memory_(memory), cold_(cold), admission_(admission), options_(options) {}

TierMover::~TierMover() {
  while (moving()) {
    news_ = {};
    cold_.Poll(TimeNs{0}, news_, /*wait=*/true);
    Take(news_, TimeNs{0});
  }
  while (GiveUpHold()) continue;
}

TierMover::Stored TierMover::Find(const Request& request) {
  const uint32_t usable = std::min(request.known() - 1, request.ReuseMax());  // One token is computed.
  const uint32_t whole = usable / kv::kBlockTokens * kv::kBlockTokens;
  const auto tokens = std::span(request.tokens).first(whole);
  Stored stored{.cached_tokens =
                    memory_.CachedBeginning(request.input.cache_namespace, tokens, request.input.ops).tokens};
  if (stored.cached_tokens == whole) return stored;
  const std::vector<kv::ContentId> all =
      kv::ContentIdsOf(memory_.tree().RootContent(request.input.cache_namespace), tokens, request.input.ops);
  const auto rest = std::span(all).subspan(stored.cached_tokens / kv::kBlockTokens);
  stored.run = cold_.Lookup(rest);
  stored.ids.assign(rest.begin(), rest.begin() + stored.run.blocks);
  return stored;
}

bool TierMover::Pays(const Stored& stored, const sched::StepCost& cost) {
  return stored.run.blocks > 0 &&
         cold_.LoadNs(stored.run) < cost.PromptNs(stored.run.blocks * kv::kBlockTokens, stored.cached_tokens);
}

bool TierMover::HoldsBack(Request& request, const sched::StepCost& cost, TimeNs now) {
  Request::Fetch& fetch = request.fetch;
  if (fetch.under_way) return true;
  if (fetch.done) return false;
  const Stored stored = Find(request);
  fetch.found = stored.run;
  if (!Pays(stored, cost)) {
    if (stored.run.blocks > 0) ++stats_.computed_instead;
    fetch.done = true;
    fetch.wanted = false;
    return false;
  }
  if (!std::exchange(fetch.wanted, true)) fetch.wanted_since = now;
  if (WaitsForFrames(stored.run.blocks, now - fetch.wanted_since)) {
    hurry_until_ = now + kHurryNs;
    return true;
  }
  const bool started = Start(request, stored, now);
  // Else frames that were free for it have gone to others, or never were because of pins. Where none are on their way,
  // it takes its turn as it is.
  fetch.wanted = !started && moving();
  return started || fetch.wanted;
}

/// Whether a fetch of so many blocks that has waited so long has to wait for what is being moved, or is not decided
/// about.
bool TierMover::WaitsForFrames(uint32_t blocks, int64_t waited_ns) {
  const auto bound = static_cast<uint32_t>(options_.loading_share * memory_.frames_count());
  if (loading_ > 0 && loading_ + blocks > bound) return true;
  return (blocks > memory_.AvailableFrames() && moving()) || (waited_ns < kPatienceNs && TakesUndecided(blocks));
}

void TierMover::CountLookup(Request& request) {
  if (!std::exchange(request.fetch.counted, true)) cold_.CountLookup(request.fetch.found);
}

void TierMover::TextBegins(Request& request) {
  CountLookup(request);
  request.held_before_block_ns += EndHold(request.id);
}

double TierMover::EndHold(RequestId request) {
  const auto hold = std::ranges::find(holds_, request, &Hold::request);
  return hold == holds_.end() ? 0 : EndHold(hold);
}

std::optional<RequestId> TierMover::GiveUpHold(int urgency) {
  const auto last = std::ranges::find_if(holds_.rbegin(), holds_.rend(),
                                         [&](const Hold& hold) { return int{hold.priority} > urgency; });
  if (last == holds_.rend()) return std::nullopt;
  const RequestId request = last->request;
  EndHold(std::prev(last.base()));
  ++stats_.holds_given_up;
  return request;
}

/// @return what it has held, in block-nanoseconds
double TierMover::EndHold(std::vector<Hold>::iterator hold) {
  const kv::RetainOutcome outcome = memory_.End(hold->sequence, {.now = hold->since});
  holds_.erase(hold);
  return outcome.held_block_ns;
}

/// Whether so many frames are not to be had without blocks that nobody has decided about yet; then these are next.
bool TierMover::TakesUndecided(uint32_t frames) {
  const kv::FrameCounts counts = memory_.counts();
  if (!cold_.IsWriting() || frames <= counts.free) return false;
  std::vector<kv::KvMemory::Storable> undecided;
  memory_.AppendOldest(kUneven * (frames - counts.free), undecided);
  if (!undecided.empty()) fetch_frames_ = std::max(fetch_frames_, frames);
  return !undecided.empty();
}

bool TierMover::Start(Request& request, const Stored& stored, TimeNs now) {
  const auto tokens = std::span(request.tokens).first(stored.cached_tokens + stored.run.blocks * kv::kBlockTokens);
  const RequestId id{kLoadIds | next_load_};
  std::vector<FrameId> frames;
  const kv::BlockSource source = stored.run.memory_blocks == stored.run.blocks ? kv::BlockSource::kColdMemory
                                 : stored.run.memory_blocks == 0               ? kv::BlockSource::kDrive
                                                                               : kv::BlockSource::kColdMemoryAndDrive;
  if (!memory_.BeginLoad(id, request.input.cache_namespace, tokens, request.input.ops, source, frames)) return false;
  KVIST_CHECK(frames.size() == stored.run.blocks);
  ++next_load_;
  std::vector<kv::ColdRead> reads;
  for (uint32_t i = 0; i < frames.size(); ++i) {
    const auto own = tokens.subspan(stored.cached_tokens + i * kv::kBlockTokens, kv::kBlockTokens);
    reads.push_back({.id = stored.ids[i], .frame = frames[i], .tokens = own});
  }
  const kv::ColdTicket ticket = cold_.Load(reads, now);
  loads_[ticket] = {.sequence = id,
                    .request = request.id,
                    .priority = request.input.priority,
                    .tokens = std::vector(tokens.begin(), tokens.end()),
                    .ids = stored.ids,
                    .usable = stored.run.blocks,
                    .since = now};
  loading_ += stored.run.blocks;
  ++stats_.fetches;
  stats_.fetched_blocks += stored.run.blocks;
  request.fetch.under_way = true;
  request.fetch.blocks = static_cast<uint32_t>(tokens.size()) / kv::kBlockTokens;
  CountLookup(request);  // What it finds afterwards is what it has read.
  return true;
}

void TierMover::FinishLoad(const kv::ColdNews::Load& news, TimeNs now) {
  const auto it = loads_.find(news.ticket);
  KVIST_CHECK(it != loads_.end());
  const Load& load = it->second;
  const uint32_t blocks = news.missing.empty() ? load.usable : std::min(load.usable, news.missing.front());
  memory_.EndLoad(load.sequence, load.tokens, blocks, now);
  if (blocks == load.blocks()) {
    holds_.push_back({.sequence = load.sequence, .request = load.request, .priority = load.priority, .since = now});
  } else {
    memory_.End(load.sequence, {.now = now});  // Frames that nothing came to are others'.
  }
  loading_ -= load.blocks();
  stats_.restored_blocks += blocks;
  stats_.fetch_ns += std::max<int64_t>(now - load.since, 0);
  fetched_.push_back({load.request, blocks});
  loads_.erase(it);
}

bool TierMover::Take(const kv::ColdNews& news, TimeNs now) {
  for (const kv::ColdNews::Load& load : news.loads) FinishLoad(load, now);
  for (const kv::ColdTicket ticket : news.stores) {
    const auto it = stores_.find(ticket);
    KVIST_CHECK(it != stores_.end());
    for (const FrameId frame : it->second) memory_.EndStore(frame);
    storing_ -= static_cast<uint32_t>(it->second.size());
    stores_.erase(it);
  }
  return !news.loads.empty() || !news.stores.empty();
}

/// What is to be forgotten is hot memory's alone, which knows when. @return whether there was any
bool TierMover::ForgetBelow() {
  std::vector<kv::ContentId> ids = memory_.TakeForgotten();
  if (ids.empty()) return false;
  cold_.Forget(ids);
  std::ranges::sort(ids, {}, &kv::ContentId::low);
  const auto is_forgotten = [&](const kv::ContentId& id) {
    return std::ranges::binary_search(ids, id.low, {}, &kv::ContentId::low);
  };
  for (auto& [ticket, load] : loads_) {  // Those that it has not got yet it may still bring.
    const auto end = load.ids.begin() + load.usable;
    load.usable = static_cast<uint32_t>(std::find_if(load.ids.begin(), end, is_forgotten) - load.ids.begin());
  }
  return true;
}

bool TierMover::Turn(TimeNs now) {
  if (closed_) return false;
  const bool forgot = ForgetBelow();
  news_ = {};
  cold_.Poll(now, news_);
  const bool taken = Take(news_, now);
  return StoreAhead(now) || taken || forgot;
}

std::vector<Fetched> TierMover::TakeFetched() {
  return std::exchange(fetched_, {});
}

TimeNs TierMover::NextTurn(TimeNs now) const {
  if (closed_) return kTimeNever;
  const bool hurry = cold_.busy() && now < hurry_until_;
  if (!loads_.empty() || fetch_frames_ > 0 || hurry) return now + kLoadTurnNs;
  return cold_.busy() || !stores_.empty() ? now + kStoreTurnNs : kTimeNever;
}

uint32_t TierMover::StoringRoom() const {
  const auto share = static_cast<uint64_t>(options_.storing_share * memory_.frames_count());
  const uint64_t most = std::max(std::min(share, options_.storing_bytes_max / options_.frame_bytes), kStoringMin);
  return static_cast<uint32_t>(most - std::min<uint64_t>(most, storing_));
}

bool TierMover::WantsDrive(const kv::KvMemory::Storable& block, bool kept) {
  if (admission_.at_once()) return false;  // It was written when it was computed, or cannot be.
  // Cold memory keeps it until its request is back.
  if (memory_.IsAwaited(block.frame)) return !kept;
  ++stats_.judged_blocks;
  return admission_.Admit(memory_.UsesOf(block.frame, options_.frame_bytes));
}

/// Blocks whose frames are wanted soon are stored before that, so that taking a frame never waits.
bool TierMover::StoreAhead(TimeNs now) {
  if (!cold_.IsWriting()) return false;
  const uint32_t room = StoringRoom();
  const uint32_t ahead = std::max(
      {static_cast<uint32_t>(options_.ahead_share * memory_.frames_count()), options_.ahead_min, fetch_frames_});
  const uint32_t free = memory_.counts().free;
  if (room == 0) return false;
  fetch_frames_ = 0;  // Who still waits says so again.
  if (free >= ahead) return false;
  std::vector<kv::KvMemory::Storable> blocks;
  // Frames are taken from buckets by chance, so that some give more of their oldest than others.
  memory_.AppendOldest(kUneven * (ahead - free), blocks);
  std::vector<Move> moves;
  for (const kv::KvMemory::Storable& block : blocks) {
    if (moves.size() == room) break;
    memory_.SetJudged(block.frame);
    kv::ColdPlaces to = cold_.PlacesFor(block.facts.id);
    to.drive = to.drive && WantsDrive(block, to.memory);
    if (!to.any()) continue;
    if (memory_.IsAwaited(block.frame)) ++stats_.swapped_blocks;
    moves.push_back({block, to});
  }
  if (moves.empty()) return false;
  // Deepest blocks leave first, but texts are read from their beginning on.
  std::ranges::sort(moves, {}, [](const Move& m) { return std::pair(m.block.facts.node, m.block.facts.text_begin); });
  Store(moves, now);
  return true;
}

void TierMover::TextEnds(const Request& request, TimeNs now) {
  if (closed_) return;
  if (tenants_.size() >= kNamespacesMax) tenants_.clear();  // What is theirs from now on is nobody's: never wrong.
  tenants_.insert_or_assign(request.input.cache_namespace, TenantId{request.input.tenant_key});
  if (!admission_.at_once() || !cold_.IsWriting()) return;
  std::vector<kv::KvMemory::Storable> blocks;
  memory_.AppendText(request.id, blocks);
  // Memory learns of this request's wishes as it ends.
  const std::vector<kv::BlockWish> wishes = kv::WishesPerBlock(request.input.retain, memory_.Live(request.id));
  std::vector<Move> moves;
  for (const kv::KvMemory::Storable& block : blocks) {
    if (wishes[block.facts.text_begin / kv::kBlockTokens].forget) continue;
    if (!cold_.PlacesFor(block.facts.id).drive) continue;
    ++stats_.judged_blocks;
    if (!admission_.Admit(memory_.UsesOf(block.frame, options_.frame_bytes))) continue;
    moves.push_back({block, {.drive = true}});
  }
  Store(moves, now);
}

void TierMover::TextIsPreempted(const Request& request, const sched::StepCost& cost) {
  if (admission_.at_once() || !cold_.IsWriting()) return;
  std::vector<kv::KvMemory::Storable> blocks;
  memory_.AppendText(request.id, blocks);
  const auto count = static_cast<uint32_t>(blocks.size());
  const double read_ns = cold_.LoadNs({.blocks = count, .bytes = count * options_.frame_bytes});
  if (count == 0 || read_ns >= cost.PromptNs(count * kv::kBlockTokens, 0)) return;
  for (const kv::KvMemory::Storable& block : blocks) memory_.SetAwaited(block.frame);
}

void TierMover::Store(std::vector<Move>& moves, TimeNs now) {
  if (moves.empty()) return;
  std::vector<kv::ColdWrite> writes;
  std::vector<FrameId> frames;
  for (const auto& [block, to] : moves) {
    const auto tenant = tenants_.find(block.facts.cache_namespace);
    writes.push_back({.id = block.facts.id,
                      .parent = block.facts.parent,
                      .cache_namespace = block.facts.cache_namespace,
                      .ops_signature = block.facts.ops_signature,
                      .tenant = tenant == tenants_.end() ? TenantId{} : tenant->second,
                      .tokens = block.facts.tokens,
                      .frame = block.frame,
                      .to = to});
    if (to.drive) ++stats_.admitted_blocks;
    frames.push_back(block.frame);
    memory_.BeginStore(block.frame);
  }
  storing_ += static_cast<uint32_t>(frames.size());
  stores_[cold_.Store(writes, now)] = std::move(frames);
}

void TierMover::Close(const Clock& clock) {
  if (closed_) return;
  ForgetBelow();
  const TimeNs end = clock.Now() + options_.stop_ns;
  const auto wait = [&] {
    news_ = {};
    cold_.Poll(clock.Now(), news_, /*wait=*/true);
    Take(news_, clock.Now());
  };
  std::vector<kv::KvMemory::Storable> all;
  while (moving()) wait();
  memory_.AppendAll(all);
  // Nothing changes the tree from here on, so that what was found stays true.
  std::vector<Move> part;
  for (const kv::KvMemory::Storable& block : all) {
    if (clock.Now() >= end || !cold_.IsWriting()) break;
    if (!cold_.PlacesFor(block.facts.id).drive) continue;
    ++stats_.judged_blocks;
    if (!admission_.AdmitAtStop(memory_.UsesOf(block.frame, options_.frame_bytes))) continue;
    part.push_back({block, {.drive = true}});
    if (part.size() < StoringRoom()) continue;
    Store(part, clock.Now());
    part.clear();
    while (StoringRoom() == 0 && moving()) wait();
  }
  Store(part, clock.Now());
  while (moving()) wait();
  closed_ = true;
  cold_.Close([&] {
    const TimeNs now = clock.Now();
    return now < end && admission_.AdmitAtStop({.now = now, .bytes = options_.frame_bytes});
  });
}

}  // namespace kvist::engine
