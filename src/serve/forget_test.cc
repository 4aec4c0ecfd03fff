#include "serve/forget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvist::serve {
namespace {

namespace json = boost::json;
using testing::ElementsAre;

std::vector<uint32_t> Forgotten(const ForgetRules& rules, const char* messages) {
  json::array array = json::parse(messages).as_array();
  auto out = TakeMarks(rules, array);
  EXPECT_TRUE(out.ok()) << out.status();
  for (const json::value& message : array) EXPECT_FALSE(message.as_object().contains("kvist"));
  return out.ok() ? out->forgotten : std::vector<uint32_t>{99};
}

constexpr char kAgent[] = R"([{"role":"system","content":"s"},{"role":"user","content":"u"},
  {"role":"assistant","content":"a"},{"role":"tool","content":"t1"},{"role":"assistant","content":"b"},
  {"role":"tool","content":"t2"},{"role":"tool","content":"t3"},{"role":"user","content":"v"}])";

TEST(Forget, NothingWithoutRulesOrMarks) {
  EXPECT_THAT(Forgotten({}, kAgent), ElementsAre());
}

TEST(Forget, KeepsTheLastToolResults) {
  EXPECT_THAT(Forgotten({.keep_tool_results = 1}, kAgent), ElementsAre(3, 5));
  EXPECT_THAT(Forgotten({.keep_tool_results = 0}, kAgent), ElementsAre(3, 5, 6));
  EXPECT_THAT(Forgotten({.keep_tool_results = 5}, kAgent), ElementsAre());
}

std::vector<uint32_t> MayFade(const char* messages) {
  json::array array = json::parse(messages).as_array();
  const auto marks = TakeMarks({}, array);
  EXPECT_TRUE(marks.ok()) << marks.status();
  std::vector<uint32_t> out;
  for (uint32_t i = 0; marks.ok() && i < marks->may_fade.size(); ++i) {
    if (marks->may_fade[i]) out.push_back(i);
  }
  return out;
}

TEST(Forget, TheFirstMessageTheSystemsThoseToKeepAndTheLastTwoTurnsMayNotFade) {
  EXPECT_THAT(MayFade(kAgent), ElementsAre(1, 2));
  EXPECT_THAT(MayFade(R"([{"role":"user","content":"1"},{"role":"assistant","content":"1"},
    {"role":"user","content":"2","kvist":{"keep":true}},{"role":"system","content":"s"},{"role":"user","content":" "},
    {"role":"user","content":"2"},{"role":"assistant","content":"2"},{"role":"user","content":"3"},
    {"role":"assistant","content":"3"},{"role":"user","content":"4"}])"),
              ElementsAre(1, 5, 6));
  EXPECT_THAT(MayFade(R"([{"role":"user","content":"1"},{"role":"user","content":"2"},{"role":"user","content":"3"}])"),
              ElementsAre());
}

TEST(Forget, WhatIsToBeKeptStaysWhateverTheRules) {
  constexpr char kTools[] = R"([{"role":"tool","content":"1","kvist":{"keep":true}},{"role":"tool","content":"2"},
    {"role":"user","content":"u"}])";
  EXPECT_THAT(Forgotten({.keep_tool_results = 0}, kTools), ElementsAre(1));
}

TEST(Forget, KeepsFirstAndLastTurns) {
  constexpr char kChat[] = R"([{"role":"system","content":"s"},{"role":"user","content":"1"},
    {"role":"assistant","content":"1"},{"role":"user","content":"2"},{"role":"assistant","content":"2"},
    {"role":"user","content":"3"},{"role":"assistant","content":"3"},{"role":"user","content":"4"}])";
  EXPECT_THAT(Forgotten({.keep_turns_first = 1, .keep_turns_last = 1}, kChat), ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(Forgotten({.keep_turns_first = 0, .keep_turns_last = 2}, kChat), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Forgotten({.keep_turns_first = 2, .keep_turns_last = 2}, kChat), ElementsAre());
}

TEST(Forget, MarksOfMessages) {
  constexpr char kMarked[] = R"([{"role":"user","content":"1","kvist":{"ephemeral":true}},
    {"role":"assistant","content":"1","kvist":{"drop":true}},{"role":"user","content":"2","kvist":{"ephemeral":true}},
    {"role":"assistant","content":"2"},{"role":"user","content":"3","kvist":{"drop":true}}])";
  EXPECT_THAT(Forgotten({}, kMarked), ElementsAre(0, 1));  // The last message stays.
  EXPECT_THAT(Forgotten({.keep_ephemeral = 0}, kMarked), ElementsAre(0, 1, 2));
}

TEST(Forget, ErrorsNameTheMark) {
  json::array array = json::parse(R"([{"role":"user","content":"1","kvist":{"dorp":true}}])").as_array();
  EXPECT_THAT(std::string(TakeMarks({}, array).status().message()), testing::HasSubstr("messages[0].kvist"));
  array = json::parse(R"([{"role":"user","content":"1","kvist":{"drop":1}}])").as_array();
  EXPECT_THAT(std::string(TakeMarks({}, array).status().message()), testing::HasSubstr("messages[0].kvist.drop"));
}

}  // namespace
}  // namespace kvist::serve
