#include "telemetry/log.h"

#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <boost/json.hpp>

namespace kvist::telemetry {
namespace {

using testing::HasSubstr;

/// The default log goes to a string while this lives.
class CapturedLog {
 public:
  explicit CapturedLog(LogFormat format) : before_(spdlog::default_logger()) {
    auto log = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(out_));
    log->set_formatter(NewLogFormatter(format));
    spdlog::set_default_logger(log);
  }
  ~CapturedLog() { spdlog::set_default_logger(before_); }

  std::string text() const { return out_.str(); }

 private:
  std::ostringstream out_;
  std::shared_ptr<spdlog::logger> before_;
};

TEST(Log, TextQuotesWhatHasNoClearEnd) {
  CapturedLog log(LogFormat::kText);
  Log(spdlog::level::info, "answered",
      {{"request", "chatcmpl-1"},
       {"why", "a \"b\"\n"},
       {"tokens", int64_t{7}},
       {"ms", 1.5},
       {"streamed", true},
       {"none", ""}});
  EXPECT_THAT(log.text(),
              HasSubstr(R"( info answered request=chatcmpl-1 why="a \"b\"\n" tokens=7 ms=1.5 streamed=true none="")"));
  EXPECT_EQ(std::ranges::count(log.text(), '\n'), 1);
}

TEST(Log, JsonIsOneObjectALine) {
  CapturedLog log(LogFormat::kJson);
  Log(spdlog::level::warn, "line\nbreak",
      {{"request", "r\"1"}, {"tokens", int64_t{-3}}, {"share", 0.25}, {"last", false}});
  spdlog::info("plain {}", 1);
  std::istringstream lines(log.text());
  std::string first, second, third;
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_FALSE(std::getline(lines, third));
  const boost::json::value line = boost::json::parse(first);
  EXPECT_EQ(line.at("message"), "line\nbreak");
  EXPECT_EQ(line.at("level"), "warning");
  EXPECT_EQ(line.at("request"), "r\"1");
  EXPECT_EQ(line.at("tokens"), -3);
  EXPECT_EQ(line.at("share"), 0.25);
  EXPECT_EQ(line.at("last"), false);
  EXPECT_THAT(std::string(line.at("time").as_string()), testing::MatchesRegex("....-..-..T..:..:..\\....Z"));
  const boost::json::object plain = boost::json::parse(second).as_object();
  EXPECT_EQ(plain.at("message"), "plain 1");
  EXPECT_EQ(plain.size(), 3u) << "fields of the line before";
}

TEST(Log, ThreadsKeepTheirFieldsApart) {
  CapturedLog log(LogFormat::kText);
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i) Log(spdlog::level::info, std::to_string(t), {{"thread", t}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::istringstream lines(log.text());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const char t = line[line.find("info ") + 5];
    EXPECT_THAT(line, HasSubstr(std::string("thread=") + t));
  }
  EXPECT_EQ(count, 400);
}

}  // namespace
}  // namespace kvist::telemetry
