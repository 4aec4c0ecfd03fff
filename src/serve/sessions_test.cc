#include "serve/sessions.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/prng.h"

namespace kvist::serve {
namespace {

std::vector<TokenId> Tokens(std::initializer_list<uint32_t> ids) {
  std::vector<TokenId> tokens;
  for (const uint32_t id : ids) tokens.push_back(TokenId{id});
  return tokens;
}

TEST(Continue, WithoutAPastWhatIsDroppedIsLeftOut) {
  const History next = Continue({}, Tokens({1, 2, 3, 4, 5}), std::vector<TokenRange>{{1, 3}});
  EXPECT_EQ(next.tokens, Tokens({1, 4, 5}));
  EXPECT_TRUE(next.ops.empty());
}

TEST(Continue, WhatThePastHasReadStaysInTheTextAndLeavesTheView) {
  const History past{Tokens({1, 2, 3, 4, 5, 6}), {}};
  const History next = Continue(past, Tokens({1, 2, 3, 4, 5, 6, 7, 8}), std::vector<TokenRange>{{1, 3}});
  EXPECT_EQ(next.tokens, Tokens({1, 2, 3, 4, 5, 6, 7, 8}));
  ASSERT_EQ(next.ops.size(), 1u);
  // Token 6 of the past was sampled and never read: the operation comes before it.
  EXPECT_EQ(next.ops[0], (kv::CacheOp{.at = 5, .begin = 1, .end = 3}));
  // The next turn repeats it, and adds one.
  History later = Continue({Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9}), next.ops}, Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}),
                           std::vector<TokenRange>{{1, 3}, {6, 7}});
  ASSERT_EQ(later.ops.size(), 2u);
  EXPECT_EQ(later.ops[0], next.ops[0]);
  EXPECT_EQ(later.ops[1], (kv::CacheOp{.at = 8, .begin = 6, .end = 7}));
}

TEST(Continue, WhatWasLeftOutBeforeIsLeftOutAgain) {
  const std::vector<TokenId> full = Tokens({1, 2, 3, 4, 5});
  const History first = Continue({}, full, std::vector<TokenRange>{{1, 3}});
  History past = first;
  past.tokens.push_back(TokenId{6});  // The answer.
  const History next = Continue(past, Tokens({1, 2, 3, 4, 5, 6, 7}), std::vector<TokenRange>{{1, 3}});
  EXPECT_EQ(next.tokens, Tokens({1, 4, 5, 6, 7}));
  EXPECT_TRUE(next.ops.empty());
}

TEST(Continue, WhatIsNoLongerDroppedIsReadAgainFromThereOn) {
  const History past{Tokens({1, 2, 3, 4, 5, 6}), {{.at = 4, .begin = 1, .end = 2}, {.at = 5, .begin = 2, .end = 3}}};
  const History next = Continue(past, Tokens({1, 2, 3, 4, 5, 6, 7}), std::vector<TokenRange>{{2, 3}});
  EXPECT_EQ(next.tokens.size(), 7u);
  ASSERT_EQ(next.ops.size(), 1u);
  EXPECT_EQ(next.ops[0].begin, 2u);
}

TEST(Continue, AnEditedTextKeepsOperationsOfWhatIsStillShared) {
  const History past{Tokens({1, 2, 3, 4, 5, 6, 7, 8}),
                     {{.at = 3, .begin = 0, .end = 1}, {.at = 7, .begin = 1, .end = 2}}};
  const History next = Continue(past, Tokens({1, 2, 3, 4, 50, 6}), std::vector<TokenRange>{{0, 1}, {1, 2}});
  ASSERT_EQ(next.ops.size(), 2u);
  EXPECT_EQ(next.ops[0], past.ops[0]);
  EXPECT_EQ(next.ops[1], (kv::CacheOp{.at = 4, .begin = 1, .end = 2}));
}

/// Whatever the past, the view of the result is the prompt without what is dropped, and the operations are well-formed.
TEST(Continue, TheViewIsAlwaysThePromptWithoutWhatIsDropped) {
  Prng prng(5);
  for (int round = 0; round < 2000; ++round) {
    History past;
    std::vector<TokenId> prompt;
    for (int turn = 0; turn < 4; ++turn) {
      if (prng.Below(4) == 0 && !prompt.empty()) prompt.resize(prng.Below(prompt.size()) + 1);  // Edited.
      const uint64_t more = 1 + prng.Below(8);
      for (uint64_t i = 0; i < more; ++i) prompt.push_back(TokenId{static_cast<uint32_t>(prng.Below(3))});
      std::vector<TokenRange> dropped;
      for (uint32_t at = 0; at + 1 < prompt.size(); ++at) {
        if (prng.Below(4) != 0) continue;
        const auto end = static_cast<uint32_t>(std::min<uint64_t>(prompt.size() - 1, at + 1 + prng.Below(4)));
        dropped.push_back({at, end});
        at = end;
      }
      const History next = Continue(past, prompt, dropped);
      ASSERT_EQ(kv::FindFault(next.ops), "");
      std::vector<TokenId> expected, view;
      size_t range = 0;
      for (uint32_t i = 0; i < prompt.size(); ++i) {
        while (range < dropped.size() && dropped[range].end <= i) ++range;
        if (range == dropped.size() || i < dropped[range].begin) expected.push_back(prompt[i]);
      }
      const auto live = kv::LiveText::After(static_cast<uint32_t>(next.tokens.size()), next.ops);
      for (const kv::LiveRange& r : live.ranges())
        view.insert(view.end(), next.tokens.begin() + r.begin, next.tokens.begin() + r.end);
      ASSERT_EQ(view, expected) << "round " << round;
      past = next;
      prompt.push_back(TokenId{7});  // The answer.
      past.tokens.push_back(TokenId{7});
    }
  }
}

/// The text of a session that grows by a frame and an answer each turn.
struct Frames {
  History past;
  std::vector<TokenId> text;
  uint32_t next_token = 0;

  History Turn(uint32_t sinks, uint32_t window, uint32_t frame_tokens) {
    for (uint32_t i = 0; i < frame_tokens; ++i) text.push_back(TokenId{next_token++});
    History next = WithWindow(past, Continue(past, text, {}), sinks, window);
    EXPECT_EQ(next.tokens, text);
    EXPECT_EQ(kv::FindFault(next.ops), "");
    past = next;
    for (int i = 0; i < 3; ++i) {
      past.tokens.push_back(TokenId{next_token++});
      text.push_back(past.tokens.back());
    }
    return next;
  }
};

TEST(WithWindow, TheViewStaysBoundedAndKeepsItsFirstTokens) {
  Frames frames;
  size_t drops = 0;
  for (int turn = 0; turn < 200; ++turn) {
    const History next = frames.Turn(/*sinks=*/4, /*window=*/40, /*frame_tokens=*/7);
    const auto tokens = static_cast<uint32_t>(next.tokens.size());
    const kv::LiveText live = kv::LiveText::After(tokens, next.ops);
    EXPECT_LE(live.live_tokens(), 4u + 40 + 20 + 10 + 7);
    EXPECT_GE(live.live_tokens(), std::min(tokens, 44u));
    EXPECT_EQ(live.ranges().front(), (kv::LiveRange{.begin = 0, .end = live.ranges().size() > 1 ? 4 : tokens}));
    if (next.ops.size() == drops) continue;
    EXPECT_EQ(next.ops.size(), ++drops);
    EXPECT_EQ(next.ops.back().at, tokens - 7 - 1) << "all that was read; the last answer's last token was not";
  }
  EXPECT_GT(drops, 60u);
  EXPECT_LT(drops, 120u) << "not every frame drops something";
}

TEST(WithWindow, AnotherTextBeginsAnew) {
  Frames frames;
  for (int turn = 0; turn < 20; ++turn) frames.Turn(4, 40, 7);
  ASSERT_FALSE(frames.past.ops.empty());
  std::vector<TokenId> edited = frames.text;
  edited[30] = TokenId{9999};
  const History next = WithWindow(frames.past, Continue(frames.past, edited, {}), 4, 40);
  EXPECT_TRUE(next.ops.empty()) << "nothing behind the edit was read";
  EXPECT_TRUE(WithWindow({}, {frames.text, {}}, 4, 40).ops.empty());
}

TEST(Sessions, ForgetTheOneUnusedForLongest) {
  Sessions sessions(2, 1000);
  sessions.Store(1, "a", {{Tokens({1}), {}}, {}});
  sessions.Store(1, "b", {{Tokens({2}), {}}, {}});
  EXPECT_EQ(sessions.Find(1, "a").history.tokens, Tokens({1}));
  EXPECT_TRUE(sessions.Find(2, "a").history.tokens.empty());  // Another namespace.
  sessions.Store(1, "c", {{Tokens({3}), {}}, {}});
  EXPECT_TRUE(sessions.Find(1, "b").history.tokens.empty());
  EXPECT_EQ(sessions.Find(1, "a").history.tokens, Tokens({1}));
  sessions.Store(1, "a", {{std::vector<TokenId>(2000, TokenId{1}), {}}, {}});  // Too long for all, but the only one.
  EXPECT_EQ(sessions.size(), 1u);
}

}  // namespace
}  // namespace kvist::serve
