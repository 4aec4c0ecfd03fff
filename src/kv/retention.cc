#include "kv/retention.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/check.h"
#include "base/status.h"
#include "kv/page_layout.h"

namespace kvist::kv {
namespace {

constexpr size_t IndexOf(Retention retention) {
  return static_cast<size_t>(retention);
}

/// Hands out each block once, to the first who asks.
class FirstComer {
 public:
  explicit FirstComer(uint32_t blocks) : next_(blocks + 1) { std::iota(next_.begin(), next_.end(), 0u); }

  template <class Take>
  void For(uint32_t begin, uint32_t end, const Take& take) {
    for (uint32_t block = Free(begin); block < end; block = Free(block)) {
      take(block);
      next_[block] = block + 1;
    }
  }

 private:
  uint32_t Free(uint32_t block) {
    while (next_[block] != block) block = next_[block] = next_[next_[block]];
    return block;
  }
  std::vector<uint32_t> next_;  ///< Towards the next block that is left.
};

}  // namespace

std::string_view RetentionName(Retention retention) {
  constexpr std::string_view kNames[] = {"low", "normal", "high", "pinned"};
  return kNames[IndexOf(retention)];
}

std::string FindFault(std::span<const RetainRange> ranges, uint32_t prompt_tokens) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    const RetainRange& range = ranges[i];
    if (range.begin >= range.end) return Cat("range ", i, " has no token: [", range.begin, ", ", range.end, ")");
    if (range.end != kToTheEnd && range.end > prompt_tokens) {
      return Cat("range ", i, " ends at ", range.end, " in a prompt of ", prompt_tokens, " tokens");
    }
    if (range.for_ns < 0) return Cat("range ", i, " is to be kept for less than no time");
    if (range.forget && range.for_ns == kForeverNs) return Cat("range ", i, " is to be forgotten but has no end");
  }
  return "";
}

std::vector<BlockWish> WishesPerBlock(std::span<const RetainRange> ranges, const LiveText& live) {
  const uint32_t tokens = live.tokens();
  const uint32_t blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
  std::vector<BlockWish> out(blocks);
  std::vector<uint32_t> order(ranges.size());  // The longest first; of equal ones those to be forgotten.
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, std::greater(),
                           [&](uint32_t i) { return std::pair(ranges[i].for_ns, ranges[i].forget); });
  FirstComer own(blocks), low(blocks);
  for (const uint32_t i : order) {
    const RetainRange& range = ranges[i];
    if (range.begin >= std::min(range.end, tokens)) continue;
    const uint32_t begin = range.begin / kBlockTokens;
    const uint32_t end = (std::min(range.end, tokens) + kBlockTokens - 1) / kBlockTokens;
    own.For(begin, end, [&](uint32_t block) {
      out[block].end_ns = range.for_ns;
      out[block].forget = range.forget;
    });
    BlockWish& last = out[end - 1];
    if (range.retention == Retention::kPinned) last.pinned_ns = std::max(last.pinned_ns, range.for_ns);
    if (range.retention == Retention::kHigh) last.high_ns = std::max(last.high_ns, range.for_ns);
    if (range.retention != Retention::kLow) {
      last.not_low = true;
      continue;
    }
    // Of a block in part low, the rest is not.
    const uint32_t whole_begin = (range.begin + kBlockTokens - 1) / kBlockTokens;
    const uint32_t whole_end = range.end >= tokens ? blocks : range.end / kBlockTokens;
    low.For(whole_begin, whole_end, [&](uint32_t block) { out[block].low_ns = range.for_ns; });
  }
  BlockWish after;  // What the blocks after this one are wished to be.
  for (uint32_t block = blocks; block-- > 0;) {
    BlockWish& wish = out[block];
    after.pinned_ns = std::max(after.pinned_ns, wish.pinned_ns);
    after.high_ns = std::max(after.high_ns, wish.high_ns);
    after.not_low = after.not_low || wish.not_low;
    if (live.AnyLive(block * kBlockTokens, (block + 1) * kBlockTokens)) {
      wish.pinned_ns = after.pinned_ns;
      wish.high_ns = after.high_ns;
    }
    wish.not_low = after.not_low;
    if (wish.not_low) wish.low_ns = BlockWish::kNone;
  }
  return out;
}

TimeNs RetentionBook::Until(FrameId frame, Retention retention) const {
  const auto it = states_.find(frame);
  return it == states_.end() ? kPast : it->second.until[IndexOf(retention)];
}

Retention RetentionBook::ClassOf(FrameId frame) const {
  const auto it = states_.find(frame);
  return it == states_.end() ? Retention::kNormal : it->second.retention;
}

bool RetentionBook::IsDoomed(FrameId frame) const {
  const auto it = states_.find(frame);
  return it != states_.end() && it->second.doomed;
}

TimeNs RetentionBook::ForgottenAt(FrameId frame) const {
  const auto it = states_.find(frame);
  if (it == states_.end() || !it->second.forget) return kTimeNever;
  const State& state = it->second;
  return std::max({state.end, state.until[IndexOf(Retention::kHigh)], state.until[IndexOf(Retention::kPinned)]});
}

uint32_t RetentionBook::pins_of(TenantId owner) const {
  const auto it = pins_.find(owner);
  return it == pins_.end() ? 0 : it->second;
}

void RetentionBook::Raise(FrameId frame, Retention retention, TimeNs until, TenantId owner) {
  State& state = states_[frame];
  if (retention == Retention::kPinned && state.retention != Retention::kPinned) state.owner = owner;
  TimeNs& at = state.until[IndexOf(retention)];
  at = std::max(at, until);
}

void RetentionBook::SetLow(FrameId frame, TimeNs until) {
  if (until == kPast && !states_.contains(frame)) return;
  TimeNs& low = states_[frame].until[IndexOf(Retention::kLow)];
  lows_ -= low == kPast ? 0 : 1;
  lows_ += until == kPast ? 0 : 1;
  low = until;
}

void RetentionBook::SetEnd(FrameId frame, TimeNs end, bool forget) {
  State& state = states_[frame];
  if (end < state.end || (end == state.end && !forget)) return;
  state.end = end;
  state.forget = forget;
}

void RetentionBook::Unpin(FrameId frame) {
  State& state = states_.at(frame);
  const TimeNs until = std::exchange(state.until[IndexOf(Retention::kPinned)], kPast);
  Raise(frame, Retention::kHigh, until);
}

void RetentionBook::SetClass(State& state, Retention retention) {
  if (state.retention != Retention::kNormal) --counts_[IndexOf(state.retention)];
  if (retention != Retention::kNormal) ++counts_[IndexOf(retention)];
  if (state.retention == Retention::kPinned) {
    if (--pins_.at(state.owner) == 0) pins_.erase(state.owner);
  }
  if (retention == Retention::kPinned) ++pins_[state.owner];
  state.retention = retention;
}

RetentionBook::Settled RetentionBook::Settle(FrameId frame, TimeNs now) {
  const auto it = states_.find(frame);
  if (it == states_.end()) return {Retention::kNormal, false};
  State& state = it->second;
  Retention strongest = Retention::kNormal;
  TimeNs next = kTimeNever;
  for (const Retention retention : {Retention::kLow, Retention::kHigh, Retention::kPinned}) {
    TimeNs& until = state.until[IndexOf(retention)];
    if (until <= now) {
      if (retention == Retention::kLow && until != kPast) --lows_;
      until = kPast;
      continue;
    }
    strongest = retention;
    next = std::min(next, until);
  }
  SetClass(state, strongest);
  if (state.end > now) next = std::min(next, state.end);  // Until then no other wish decides what comes after.
  const bool over = state.end <= now && strongest <= Retention::kNormal;
  state.doomed = over && state.forget;
  if (next != kTimeNever) {
    Enqueue(frame, state, next);
  } else if (!state.doomed && strongest == Retention::kNormal && state.end <= now) {
    states_.erase(it);
    return {Retention::kNormal, false};
  }
  return {strongest, state.doomed};
}

void RetentionBook::Erase(FrameId frame) {
  const auto it = states_.find(frame);
  if (it == states_.end()) return;
  SetClass(it->second, Retention::kNormal);
  SetLow(frame, kPast);
  states_.erase(it);
}

void RetentionBook::Move(FrameId from, FrameId to) {
  const auto it = states_.find(from);
  if (it == states_.end()) return;
  State moved = it->second;
  Erase(from);
  if (moved.retention == Retention::kLow) moved.retention = Retention::kNormal;
  moved.until[IndexOf(Retention::kLow)] = kPast;
  const TimeNs queued = std::exchange(moved.queued, kTimeNever);
  const auto [target, inserted] = states_.emplace(to, moved);
  KVIST_CHECK(inserted);
  target->second.retention = Retention::kNormal;  // Counted next.
  SetClass(target->second, moved.retention);
  if (queued != kTimeNever) Enqueue(to, target->second, queued);
}

void RetentionBook::Enqueue(FrameId frame, State& state, TimeNs at) {
  if (state.queued <= at) return;  // It is looked at before that; what is then to come is queued then.
  state.queued = at;
  if (queue_.size() > 2 * states_.size() + 64) Compact();
  queue_.emplace_back(at, frame);
  std::ranges::push_heap(queue_, std::greater());
}

/// Throws out the entries that an earlier one has replaced.
void RetentionBook::Compact() {
  std::erase_if(queue_, [&](const auto& entry) {
    const auto it = states_.find(entry.second);
    return it == states_.end() || it->second.queued != entry.first;
  });
  std::ranges::make_heap(queue_, std::greater());
}

void RetentionBook::TakeDue(TimeNs now, std::vector<FrameId>& out) {
  while (!queue_.empty() && queue_.front().first <= now) {
    const auto [at, frame] = queue_.front();
    std::ranges::pop_heap(queue_, std::greater());
    queue_.pop_back();
    const auto it = states_.find(frame);
    if (it == states_.end() || it->second.queued != at) continue;
    it->second.queued = kTimeNever;
    out.push_back(frame);
  }
}

void RetentionBook::CheckInvariants() const {
  std::array<uint32_t, kRetentions> counts = {};
  absl::flat_hash_map<TenantId, uint32_t> pins;
  uint32_t lows = 0;
  auto sorted = queue_;
  std::ranges::sort(sorted);
  for (const auto& [frame, state] : states_) {
    if (state.retention != Retention::kNormal) ++counts[IndexOf(state.retention)];
    if (state.retention == Retention::kPinned) ++pins[state.owner];
    lows += state.until[IndexOf(Retention::kLow)] == kPast ? 0 : 1;
    for (const TimeNs until : state.until) KVIST_CHECK(until == kPast || until == kTimeNever || state.queued <= until);
    KVIST_CHECK(state.queued == kTimeNever || std::ranges::binary_search(sorted, std::pair(state.queued, frame)));
  }
  KVIST_CHECK(counts == counts_ && pins == pins_ && lows == lows_ && count(Retention::kPinned) <= pins_max_);
  KVIST_CHECK(std::ranges::is_heap(queue_, std::greater()));
}

}  // namespace kvist::kv
