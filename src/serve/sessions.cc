#include "serve/sessions.h"

#include <algorithm>

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

}  // namespace

History Continue(const History& past, std::span<const TokenId> prompt, std::span<const TokenRange> dropped) {
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
      if (!same || at + count > read || !std::ranges::equal(text, std::span(past.tokens).subspan(at, count))) continue;
      kept.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + count)});
      next.tokens.insert(next.tokens.end(), text.begin(), text.end());
      continue;
    }
    same = same && at < past.tokens.size() && past.tokens[at] == prompt[i];
    next.tokens.push_back(prompt[i++]);
  }
  const auto [mine, theirs] = std::ranges::mismatch(next.tokens, past.tokens);
  const uint32_t shared = static_cast<uint32_t>(std::min<size_t>(mine - next.tokens.begin(), read));
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

std::string Sessions::KeyOf(uint64_t cache_namespace, std::string_view session) {
  return Cat(cache_namespace, "/", session);
}

History Sessions::Find(uint64_t cache_namespace, std::string_view session) {
  std::lock_guard lock(mutex_);
  const auto it = by_key_.find(KeyOf(cache_namespace, session));
  if (it == by_key_.end()) return {};
  entries_.splice(entries_.begin(), entries_, it->second);
  return it->second->history;
}

void Sessions::Store(uint64_t cache_namespace, std::string_view session, History history) {
  std::lock_guard lock(mutex_);
  std::string key = KeyOf(cache_namespace, session);
  if (const auto it = by_key_.find(key); it != by_key_.end()) {
    tokens_ -= it->second->history.tokens.size();
    entries_.erase(it->second);
    by_key_.erase(it);
  }
  tokens_ += history.tokens.size();
  entries_.push_front({key, std::move(history)});
  by_key_[std::move(key)] = entries_.begin();
  while (entries_.size() > 1 && (entries_.size() > sessions_max_ || tokens_ > tokens_max_)) {
    tokens_ -= entries_.back().history.tokens.size();
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

size_t Sessions::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace kvist::serve
