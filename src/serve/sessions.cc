#include "serve/sessions.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace kvist::serve {
namespace {

bool Covered(const kv::CacheOp& op, std::span<const TokenRange> ranges) {
  uint32_t at = op.begin;
  for (const TokenRange& range : ranges) {
    if (range.begin <= at && at < range.end) at = range.end;
  }
  return at >= op.end;
}

/// Where the token with this index in the view stands in the text. REQUIRES: there is one.
uint32_t TextIndexOf(const kv::LiveText& live, uint32_t in_view) {
  for (const kv::LiveRange& range : live.ranges()) {
    if (in_view < range.end - range.begin) return range.begin + in_view;
    in_view -= range.end - range.begin;
  }
  return live.tokens();
}

std::string KeyOf(uint64_t cache_namespace, std::string_view session) {
  return Cat(cache_namespace, "/", session);
}

}  // namespace

uint32_t SharedTokens(const History& past, std::span<const TokenId> text) {
  const size_t read = past.tokens.empty() ? 0 : past.tokens.size() - 1;
  const size_t same = static_cast<size_t>(std::ranges::mismatch(text, past.tokens).in1 - text.begin());
  return static_cast<uint32_t>(std::min(same, read));
}

History Continue(const History& past, std::span<const TokenId> prompt, std::span<const TokenRange> dropped,
                 std::vector<TokenRange>* left_out) {
  History next;
  std::vector<TokenRange> kept;  // In the new text.
  // The last token of a past was sampled, not read: an operation comes before it.
  const size_t read = past.tokens.empty() ? 0 : past.tokens.size() - 1;
  bool same = true;
  for (size_t i = 0; i < prompt.size();) {
    const size_t at = next.tokens.size();
    if (!dropped.empty() && dropped.front().begin == i) {
      const TokenRange range = dropped.front();
      dropped = dropped.subspan(1);
      i = range.end;
      const size_t count = range.end - range.begin;
      const auto text = prompt.subspan(range.begin, count);
      if (!same || at + count > read || !std::ranges::equal(text, std::span(past.tokens).subspan(at, count))) {
        if (left_out != nullptr) left_out->push_back(range);
        continue;
      }
      kept.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + count)});
      next.tokens.insert(next.tokens.end(), text.begin(), text.end());
      continue;
    }
    same = same && at < past.tokens.size() && past.tokens[at] == prompt[i];
    next.tokens.push_back(prompt[i++]);
  }
  const uint32_t shared = SharedTokens(past, next.tokens);
  for (const kv::CacheOp& op : past.ops) {
    if (op.at > shared || !Covered(op, kept)) break;
    next.ops.push_back(op);
  }
  const kv::LiveText live = kv::LiveText::After(shared, next.ops);
  for (const TokenRange& range : kept) {
    if (live.AnyLive(range.begin, range.end))
      next.ops.push_back({.at = shared, .begin = range.begin, .end = range.end});
  }
  return next;
}

History WithWindow(const History& past, History next, uint32_t sink_tokens, uint32_t window_tokens) {
  const uint32_t shared = SharedTokens(past, next.tokens);
  next.ops.clear();
  for (const kv::CacheOp& op : past.ops) {
    if (op.at <= shared) next.ops.push_back(op);
  }
  const kv::LiveText live = kv::LiveText::After(shared, next.ops);
  const uint64_t full = uint64_t{sink_tokens} + window_tokens + window_tokens / 2;
  if (live.live_tokens() < full) return next;
  const uint32_t begin = TextIndexOf(live, sink_tokens);
  const uint32_t end = TextIndexOf(live, live.live_tokens() - window_tokens);
  next.ops.push_back({.at = shared, .begin = begin, .end = end});
  return next;
}

TokenRange Without(std::span<const TokenRange> left_out, TokenRange range) {
  TokenRange out = range;
  for (const TokenRange& gone : left_out) {
    for (const auto& [place, at] : {std::pair(&out.begin, range.begin), std::pair(&out.end, range.end)}) {
      if (gone.begin < at) *place -= std::min(gone.end, at) - gone.begin;
    }
  }
  return out;
}

SessionState Sessions::Find(uint64_t cache_namespace, std::string_view session) {
  return store_.Find(KeyOf(cache_namespace, session)).value_or(SessionState{});
}

void Sessions::Store(uint64_t cache_namespace, std::string_view session, SessionState state) {
  const size_t tokens = state.history.tokens.size();
  store_.Store(KeyOf(cache_namespace, session), std::move(state), tokens);
}

}  // namespace kvist::serve
