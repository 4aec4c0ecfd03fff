#include "serve/event_stream.h"

#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvist::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

using Events = std::vector<std::pair<std::string, std::string>>;

/// Feeds `text` in pieces of `piece` bytes.
Events Read(std::string_view text, size_t piece) {
  EventStreamReader reader;
  Events events;
  for (size_t at = 0; at < text.size(); at += piece) {
    const absl::Status status = reader.Feed(
        text.substr(at, piece), [&](std::string_view name, std::string_view data) { events.emplace_back(name, data); });
    EXPECT_TRUE(status.ok()) << status;
  }
  return events;
}

TEST(EventStreamTest, PiecesDoNotMatter) {
  const std::string text =
      "\xEF\xBB\xBF: a comment\n\ndata: {\"a\":1}\r\n\r\nevent: error\rdata:x\rdata:  y\r\rdata\n\nid: 3\nretry: "
      "9\n\ndata: [DONE]\n\n"
      "data: never ended\n";
  const Events whole = Read(text, text.size());
  EXPECT_THAT(whole, ElementsAre(Pair("", "{\"a\":1}"), Pair("error", "x\n y"), Pair("", ""), Pair("", "[DONE]")));
  for (size_t piece = 1; piece < 20; ++piece) EXPECT_EQ(Read(text, piece), whole) << piece;
}

TEST(EventStreamTest, NamesDoNotReachTheNextEvent) {
  EXPECT_THAT(Read("event: a\n\ndata: 1\n\n", 3), ElementsAre(Pair("", "1")));
}

TEST(EventStreamTest, WhatIsNoEventStreamGivesNothing) {
  EXPECT_THAT(Read("HTTP/1.1 200 OK\r\n\r\n<html>data: 1</html>\n\n \xff\xfe:\n\n", 7), IsEmpty());
}

TEST(EventStreamTest, EndlessLinesAreRefused) {
  EventStreamReader reader;
  const std::string piece(1u << 20, 'x');
  absl::Status status;
  for (int i = 0; i < 20 && status.ok(); ++i) status = reader.Feed(piece, [](auto, auto) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);

  EventStreamReader lines;
  const std::string line = "data: " + piece + "\n";
  status = absl::OkStatus();
  for (int i = 0; i < 20 && status.ok(); ++i) status = lines.Feed(line, [](auto, auto) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace kvist::serve
