#include "serve/fading.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvist::serve {
namespace {

using testing::ElementsAre;

/// A chat whose messages have ten tokens each: the first may not fade, the last two are too young to.
struct Chat {
  std::vector<TokenId> prompt;
  std::vector<MessageState> states;

  explicit Chat(uint32_t messages) { Grow(messages); }
  void Grow(uint32_t messages) {
    for (uint32_t i = 0; i < 10 * messages; ++i) {
      prompt.push_back(TokenId{static_cast<uint32_t>(3 + prompt.size())});
    }
  }

  Turn Begin(float forget_below = 0.5f) const {
    Turn turn{.forget_below = forget_below, .messages = {}};
    const auto count = static_cast<uint32_t>(prompt.size() / 10);
    for (uint32_t i = 0; i < count; ++i) {
      turn.messages.push_back({.index = i, .tokens = {10 * i, 10 * i + 10}, .may_fade = i > 0 && i + 2 < count});
    }
    Recall(prompt, states, turn);
    return turn;
  }

  /// A turn whose attention goes to the messages as `shares` says.
  Turn Run(const std::vector<float>& shares) {
    Turn turn = Begin();
    Observe(shares, turn);
    states = StatesOf(turn);
    return turn;
  }
};

std::vector<uint32_t> Faded(const Turn& turn) {
  std::vector<uint32_t> out;
  for (const TurnMessage& message : turn.messages) {
    if (message.state.faded) out.push_back(message.index);
  }
  return out;
}

TEST(Fading, AMessageGoesAfterThreeFaintTurnsInARowAndStaysAway) {
  Chat chat(5);
  const std::vector<float> shares = {0.3f, 0.01f, 0.3f, 0.2f, 0.1f};
  for (int turn = 0; turn < 3; ++turn) EXPECT_THAT(Faded(chat.Run(shares)), ElementsAre()) << turn;
  Turn next = chat.Begin();
  EXPECT_THAT(Faded(next), ElementsAre(1));
  EXPECT_TRUE(next.messages[1].fades_now);
  Observe(std::vector<float>{0.3f, 0.3f, 0.2f, 0.1f}, next);  // Nothing was measured of the one that is gone.
  EXPECT_LT(next.messages[1].attention, 0);
  chat.states = StatesOf(next);
  chat.Grow(2);
  next = chat.Begin();
  EXPECT_THAT(Faded(next), ElementsAre(1));
  EXPECT_FALSE(next.messages[1].fades_now);  // It went before.
}

TEST(Fading, AttentionIsPerTokenAndRelativeToTheMeanOfAllMessages) {
  Turn turn{.forget_below = 0.5f,
            .messages = {{.index = 0, .tokens = {0, 10}}, {.index = 3, .tokens = {20, 50}}, {.tokens = {60, 70}}}};
  turn.messages[2].dropped = true;
  Observe(std::vector<float>{0.1f, 0.1f}, turn);
  EXPECT_FLOAT_EQ(turn.messages[0].attention, 2.0f);
  EXPECT_FLOAT_EQ(turn.messages[1].attention, 2.0f / 3);
  EXPECT_EQ(turn.messages[2].attention, -1.0f);
}

TEST(Fading, OneTurnOfAttentionStartsTheCountAgain) {
  Chat chat(5);
  const std::vector<float> faint = {0.3f, 0.01f, 0.3f, 0.2f, 0.1f}, seen = {0.3f, 0.2f, 0.3f, 0.2f, 0.1f};
  for (const auto* shares : {&faint, &faint, &seen, &faint, &faint}) chat.Run(*shares);
  EXPECT_THAT(Faded(chat.Begin()), ElementsAre());
  chat.Run(faint);
  EXPECT_THAT(Faded(chat.Begin()), ElementsAre(1));
}

TEST(Fading, WhatMayNotFadeStaysAndComesBack) {
  Chat chat(5);
  for (int turn = 0; turn < 5; ++turn) chat.Run({0.001f, 0.3f, 0.3f, 0.001f, 0.001f});
  EXPECT_THAT(Faded(chat.Begin()), ElementsAre());  // The first, and the last two.
  chat.Grow(1);
  Turn next = chat.Begin();
  EXPECT_THAT(Faded(next), ElementsAre(3));
  chat.states = StatesOf(next);
  Turn kept{.forget_below = 0.5f, .messages = next.messages};
  kept.messages[3].may_fade = false;  // Marked "keep" from now on.
  Recall(chat.prompt, chat.states, kept);
  EXPECT_THAT(Faded(kept), ElementsAre());
}

TEST(Fading, AnEditedTextBeginsAnew) {
  Chat chat(6);
  for (int turn = 0; turn < 3; ++turn) chat.Run({0.3f, 0.01f, 0.3f, 0.01f, 0.3f, 0.1f});
  EXPECT_THAT(Faded(chat.Begin()), ElementsAre(1, 3));
  chat.prompt[25] = TokenId{1};  // In message 2.
  EXPECT_THAT(Faded(chat.Begin()), ElementsAre(1));
}

TEST(Fading, ATurnWithoutAMeasurementChangesNothing) {
  Chat chat(5);
  for (int turn = 0; turn < 2; ++turn) chat.Run({0.3f, 0.01f, 0.3f, 0.2f, 0.1f});
  const std::vector<MessageState> before = chat.states;
  chat.states = StatesOf(chat.Begin());  // Its client went away before a token was there.
  EXPECT_EQ(chat.states, before);
}

}  // namespace
}  // namespace kvist::serve
