#include "serve/retain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/forget.h"
#include "serve/sessions.h"

namespace kvist::serve {
namespace {

namespace json = boost::json;
using testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

absl::StatusOr<std::vector<kv::RetainRange>> Read(const char* own, RetainForm form = RetainForm::kRanges) {
  const json::object object = json::parse(own).as_object();
  std::vector<kv::RetainRange> ranges;
  const absl::Status status = ReadRetain(Fields(object, "kvist"), form, ranges);
  if (!status.ok()) return status;
  return ranges;
}

TEST(Retain, ReadsClassesObjectsAndRanges) {
  EXPECT_TRUE(Read("{}")->empty());
  EXPECT_TRUE(Read(R"({"retain": null})")->empty());
  const kv::RetainRange pinned = Read(R"({"retain": "pinned"})")->at(0);
  EXPECT_EQ(pinned.retention, kv::Retention::kPinned);
  EXPECT_EQ(pinned.begin, 0u);
  EXPECT_EQ(pinned.end, kv::kToTheEnd);
  EXPECT_EQ(pinned.for_ns, kv::kForeverNs);
  const kv::RetainRange object = Read(R"({"retain": {"priority": "low", "seconds": 1.5, "then": "forget"}})")->at(0);
  EXPECT_EQ(object.retention, kv::Retention::kLow);
  EXPECT_EQ(object.for_ns, kSecond * 3 / 2);
  EXPECT_TRUE(object.forget);
  const auto ranges = *Read(R"({"retain": [{"end": 1000, "priority": "high", "seconds": 600, "then": "normal"},
                                           {"begin": 5, "priority": "normal"}]})");
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[0].end, 1000u);
  EXPECT_FALSE(ranges[0].forget);
  EXPECT_EQ(ranges[1].begin, 5u);
  EXPECT_EQ(ranges[1].retention, kv::Retention::kNormal);
}

TEST(Retain, ErrorsNameTheMember) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"retain": 1})", "kvist.retain"},
      {R"({"retain": "forever"})", "low, normal, high or pinned"},
      {R"({"retain": {}})", "kvist.retain.priority"},
      {R"({"retain": {"priority": "high", "second": 1}})", "kvist.retain.second"},
      {R"({"retain": {"priority": "high", "begin": 1}})", "kvist.retain.begin"},  // A whole text has none.
      {R"({"retain": {"priority": "high", "seconds": -1}})", "kvist.retain.seconds"},
      {R"({"retain": {"priority": "high", "seconds": 1e10}})", "kvist.retain.seconds"},
      {R"({"retain": {"priority": "high", "seconds": "NaN"}})", "kvist.retain.seconds"},
      {R"({"retain": {"priority": "high", "then": "forget"}})", "kvist.retain.then"},
      {R"({"retain": {"priority": "high", "seconds": 1, "then": "low"}})", "kvist.retain.then"},
      {R"({"retain": [{"priority": "high"}, 5]})", "kvist.retain[1]"},
      {R"({"retain": [{"priority": "high", "begin": 5, "end": 5}]})", "kvist.retain[0].end"},
      {R"({"retain": [{"priority": "high", "begin": -5}]})", "kvist.retain[0].begin"},
  };
  for (const auto& [own, place] : cases) {
    EXPECT_THAT(std::string(Read(own).status().message()), HasSubstr(place)) << own;
  }
  EXPECT_FALSE(Read(R"({"retain": [{"priority": "high"}]})", RetainForm::kWhole).ok());
  std::string many = R"({"retain": [)";
  for (size_t i = 0; i <= kRetainRangesMax; ++i) many += std::string(i == 0 ? "" : ",") + R"({"priority":"low"})";
  EXPECT_THAT(std::string(Read((many + "]}").c_str()).status().message()), HasSubstr("at most 1024"));
}

TEST(Retain, MarksOfMessagesAreTakenOffWithTheirPlaces) {
  json::array messages = json::parse(R"([{"role":"system","content":"s","kvist":{"retain":"pinned"}},
    {"role":"user","content":"1","kvist":{"drop":true,"retain":{"priority":"low","seconds":5}}},
    {"role":"user","content":"2"}])")
                             .as_array();
  const auto marks = TakeMarks({}, messages);
  ASSERT_TRUE(marks.ok()) << marks.status();
  ASSERT_EQ(marks->retained.size(), 2u);
  EXPECT_EQ(marks->retained[0].message, 0u);
  EXPECT_EQ(marks->retained[0].wish.retention, kv::Retention::kPinned);
  EXPECT_EQ(marks->retained[1].message, 1u);
  EXPECT_EQ(marks->retained[1].wish.for_ns, 5 * kSecond);
  EXPECT_THAT(marks->forgotten, testing::ElementsAre(1));
  for (const json::value& message : messages) EXPECT_FALSE(message.as_object().contains("kvist"));
}

TEST(Retain, RangesMoveUpOverWhatIsLeftOut) {
  const std::vector<TokenRange> left_out = {{2, 5}, {8, 10}};
  const auto at = [&](uint32_t begin, uint32_t end) {
    const TokenRange range = Without(left_out, {begin, end});
    return std::pair(range.begin, range.end);
  };
  EXPECT_EQ(at(0, 2), std::pair(0u, 2u));
  EXPECT_EQ(at(2, 5), std::pair(2u, 2u));  // Itself left out.
  EXPECT_EQ(at(5, 8), std::pair(2u, 5u));
  EXPECT_EQ(at(3, 12), std::pair(2u, 7u));
  EXPECT_EQ(at(10, 12), std::pair(5u, 7u));
}

}  // namespace
}  // namespace kvist::serve
