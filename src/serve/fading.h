#pragma once

/// @file
/// Messages of a chat that its answers no longer look at leave the view by themselves (decision 0016): from the share
/// of attention that each message got in each turn follows which ones have been faint for long enough. Pure functions;
/// any thread. Non-goals: measuring (step/executor.h), what the client marks (forget.h).

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"
#include "kv/live_text.h"

namespace kvist::serve {

/// Turns in a row that a message has to be faint before it leaves.
inline constexpr uint32_t kFaintTurns = 3;

/// What a session knows of a message.
struct MessageState {
  uint64_t key = 0;          ///< Of all text up to its end: equal texts, equal keys.
  uint32_t faint_turns = 0;  ///< Turns in a row, up to the last one, in which it was faint.
  bool faded = false;        ///< It has left the view.
  friend bool operator==(const MessageState&, const MessageState&) = default;
};

/// A message of this turn.
struct TurnMessage {
  uint32_t index = 0;     ///< In the request.
  kv::TokenRange tokens;  ///< Its content in the prompt; not empty.
  bool may_fade = false;
  bool dropped = false;  ///< By the client.
  MessageState state = {};
  bool fades_now = false;  ///< It was in the view until now.
  float attention = -1;    ///< Per token, the mean over all that was measured being 1; -1 = not measured.

  bool in_view() const { return !dropped && !state.faded; }
};

/// The messages of a turn, in order.
struct Turn {
  float forget_below = 0;  ///< Attention below which a message is faint.
  std::vector<TurnMessage> messages;
};

/// Takes over what `past` knows of the messages and lets go those that were faint in the last kFaintTurns turns. What
/// may not fade (any more) is in the view.
void Recall(std::span<const TokenId> prompt, std::span<const MessageState> past, Turn& turn);

/// @param shares  of the attention, for each message in the view, in order.
void Observe(std::span<const float> shares, Turn& turn);

/// What to remember.
std::vector<MessageState> StatesOf(const Turn& turn);

}  // namespace kvist::serve
