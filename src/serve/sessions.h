#pragma once

/// @file
/// What clients' sessions have in KV memory: the tokens of the last prompt and answer, and the operations applied to
/// them. A chat client sends its whole text again and marks what may be forgotten; from the session follows which of
/// that was read before (it leaves the view now, and what was read after it stays) and which never was (it is left
/// out). Bounded; the session unused for longest is forgotten, and its client then pays for a re-read, no more.
/// Threads: any.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "kv/live_text.h"
#include "serve/bounded_store.h"
#include "serve/fading.h"

namespace kvist::serve {

using kv::TokenRange;

/// A text with its operations.
struct History {
  std::vector<TokenId> tokens;
  std::vector<kv::CacheOp> ops;
};

/// How to run `prompt` without the tokens of `dropped` (in order, apart) after `past`. Where the past has them in the
/// same place, they stay in the text and an operation takes them out of the view: the one of the past, or a new one
/// after all that the two texts share. Elsewhere they are left out of the text. An operation of the past on what is no
/// longer dropped, and all after it, are not repeated: what was read after it is read again. Pure.
/// @param left_out  receives those of `dropped` that are left out of the text.
History Continue(const History& past, std::span<const TokenId> prompt, std::span<const TokenRange> dropped,
                 std::vector<TokenRange>* left_out = nullptr);

/// Tokens of a past that `text` begins with and that were read: the last one was sampled only. Pure.
uint32_t SharedTokens(const History& past, std::span<const TokenId> text);

/// `next`, as it comes from Continue with nothing dropped, with a bounded view: what the past dropped stays out, and
/// when the view of what both share has become half as large again as the window, all but the first `sink_tokens` and
/// the last `window_tokens` of it leave. So a frame computes only itself, and not every frame drops something. Pure.
History WithWindow(const History& past, History next, uint32_t sink_tokens, uint32_t window_tokens);

/// Where tokens of a prompt are in the text without the ranges that were left out; may be nowhere (empty). Pure.
TokenRange Without(std::span<const TokenRange> left_out, TokenRange range);

/// What is known of a session.
struct SessionState {
  History history;
  std::vector<MessageState> messages;  ///< Of the last prompt, where attention was measured.
};

class Sessions {
 public:
  /// @param tokens_max  of all sessions together.
  explicit Sessions(size_t sessions_max = 4096, size_t tokens_max = size_t{64} << 20)
      : store_(sessions_max, tokens_max) {}

  /// Empty for a session that is not known.
  SessionState Find(uint64_t cache_namespace, std::string_view session);
  void Store(uint64_t cache_namespace, std::string_view session, SessionState state);
  size_t size() const { return store_.size(); }

 private:
  BoundedStore<SessionState> store_;
};

}  // namespace kvist::serve
