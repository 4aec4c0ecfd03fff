#include "serve/fading.h"

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "base/prng.h"

namespace kvist::serve {

void Recall(std::span<const TokenId> prompt, std::span<const MessageState> past, Turn& turn) {
  absl::flat_hash_map<uint64_t, const MessageState*> known;
  for (const MessageState& state : past) known[state.key] = &state;
  uint64_t key = 0;
  size_t hashed = 0;
  for (TurnMessage& message : turn.messages) {
    for (; hashed < message.tokens.end; ++hashed) key = Mix64(key ^ prompt[hashed].value);
    message.state = {.key = key};
    const auto it = known.find(key);
    if (it == known.end()) continue;
    message.state = *it->second;
    if (!message.may_fade) {
      message.state.faded = false;
    } else if (!message.dropped && !message.state.faded && message.state.faint_turns >= kFaintTurns) {
      message.state.faded = message.fades_now = true;
    }
  }
}

void Observe(std::span<const float> shares, Turn& turn) {
  double share = 0, tokens = 0;
  size_t next = 0;
  for (const TurnMessage& message : turn.messages) {
    if (!message.in_view()) continue;
    KVIST_CHECK(next < shares.size());
    share += shares[next++];
    tokens += message.tokens.end - message.tokens.begin;
  }
  KVIST_CHECK(next == shares.size());
  if (share <= 0) return;
  next = 0;
  for (TurnMessage& message : turn.messages) {
    if (!message.in_view()) continue;
    const double per_token = shares[next++] / static_cast<double>(message.tokens.end - message.tokens.begin);
    message.attention = static_cast<float>(per_token / (share / tokens));
    message.state.faint_turns = message.attention < turn.forget_below ? message.state.faint_turns + 1 : 0;
  }
}

std::vector<MessageState> StatesOf(const Turn& turn) {
  std::vector<MessageState> states;
  for (const TurnMessage& message : turn.messages) states.push_back(message.state);
  return states;
}

}  // namespace kvist::serve
