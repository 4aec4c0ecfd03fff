/// @file
/// Sessions of periodic frames at a server whose steps take longer the more is in view: with a bounded window those
/// that were let in keep their deadlines and one too many is refused; without one they all miss them once their
/// contexts have grown.

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"
#include "serve/server_testutil.h"

namespace kvist::serve {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPeriod{200};

/// A client with one session, which sends its whole text each time.
class FrameClient {
 public:
  FrameClient(uint16_t port, std::string name, uint32_t window)
      : port_(port), name_(std::move(name)), window_(window) {}

  HttpResponse Send() {
    messages_.push_back(
        {{"role", "user"}, {"content", Cat("frame ", count_++, " saw a dog and a boy near the river")}});
    json::object own = {{"session", name_}, {"frame_ms", kPeriod.count()}};
    if (window_ > 0) own["window"] = window_;
    const json::object body = {{"messages", messages_}, {"max_tokens", 4}, {"kvist", own}};
    HttpResponse response = Post(port_, kChatPath, json::serialize(body));
    if (response.status == 200) {
      const json::value answer = json::parse(response.body);
      messages_.push_back({{"role", "assistant"}, {"content", answer.at("choices").at(0).at("message").at("content")}});
    } else {
      messages_.pop_back();
      --count_;
    }
    return response;
  }

  /// A frame each period until `stop`, or until there is no room for it any more; one whose turn passed comes at once.
  void Run(const std::atomic<bool>& stop) {
    for (auto next = steady_clock::now() + kPeriod; !stop; next = std::max(next + kPeriod, steady_clock::now())) {
      std::this_thread::sleep_until(next);
      const HttpResponse response = Send();
      if (response.status == 200) continue;
      EXPECT_EQ(response.status, 429) << response.body;
      break;
    }
  }

 private:
  const uint16_t port_;
  const std::string name_;
  const uint32_t window_;
  json::array messages_;
  int count_ = 0;
};

struct Counted {
  double on_time = 0, late = 0, sessions = 0, refused = 0;
};

Counted Count(uint16_t port) {
  const std::string text = Get(port, "/metrics").body;
  const auto value = [&](std::string_view name, std::string_view label = "") {
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
      const std::string line = text.substr(at, text.find('\n', at) - at);
      if (line.find(label) != std::string::npos && at > 0 && text[at - 1] == '\n') {
        return std::stod(line.substr(line.rfind(' ')));
      }
    }
    ADD_FAILURE() << "no " << name;
    return -1.0;
  };
  return {.on_time = value("kvist_frames_total", "on_time"),
          .late = value("kvist_frames_total", "\"late\""),
          .sessions = value("kvist_frame_sessions{"),
          .refused = value("kvist_frame_sessions_refused_total")};
}

class ServerFrames : public ::testing::Test {
 protected:
  ServerFrames()
      : world_([] {
          FakeWorldOptions options = Options();
          options.view_token_time = std::chrono::microseconds(100);
          return options;
        }()) {}
  ~ServerFrames() override { StopAll(); }

  void StopAll() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  /// Asks until the session is let in, which then sends its frames. The last answer where it is not.
  HttpResponse Open(const std::string& name, uint32_t window, milliseconds patience) {
    auto client = std::make_shared<FrameClient>(world_.port(), name, window);
    HttpResponse response;
    for (const auto end = steady_clock::now() + patience; steady_clock::now() < end;) {
      response = client->Send();
      if (response.status == 200) {
        threads_.emplace_back([this, client] { client->Run(stop_); });
        break;
      }
      std::this_thread::sleep_for(kPeriod / 2);
    }
    return response;
  }

  FakeWorld world_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

TEST_F(ServerFrames, WithAWindowThoseThatAreInKeepTheirPeriods) {
  HttpResponse refused;
  int asked = 0;
  while (asked < 10 && (refused = Open(Cat("camera-", asked), /*window=*/64, kPeriod * 20)).status == 200) ++asked;
  ASSERT_GE(asked, 1);
  ASSERT_LT(asked, 10) << "one is too many";
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(ErrorOf(refused).at("code").as_string(), "frames_not_schedulable");
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  std::this_thread::sleep_for(kPeriod * 10);  // Where the last one was too many, it has gone again.
  const Counted before = Count(world_.port());
  std::this_thread::sleep_for(kPeriod * 25);
  const Counted after = Count(world_.port());
  StopAll();
  EXPECT_GE(after.sessions, 1);
  EXPECT_LE(after.sessions, asked);
  EXPECT_GT(after.refused, 0);
  const double on_time = after.on_time - before.on_time, late = after.late - before.late;
  EXPECT_GT(on_time, 20 * after.sessions);
  EXPECT_LE(late, 0.05 * on_time);
}

TEST_F(ServerFrames, WithoutOneTheyAllMissThemInTheEnd) {
  ASSERT_EQ(Open("camera", /*window=*/0, kPeriod).status, 200);
  std::this_thread::sleep_for(kPeriod * 10);
  const Counted early = Count(world_.port());
  EXPECT_EQ(early.late, 0) << "nothing tells before";
  EXPECT_GE(early.on_time, 8);
  std::this_thread::sleep_for(kPeriod * 40);
  const Counted late = Count(world_.port());
  StopAll();
  EXPECT_GT(late.late, 5);
}

TEST_F(ServerFrames, FieldsThatCannotBe) {
  const auto param = [&](const std::string& own, const std::string& more = "") {
    const HttpResponse response = Post(
        world_.port(), kChatPath,
        R"({"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}],"kvist":)" + own + more + "}");
    EXPECT_EQ(response.status, 400);
    return std::string(ErrorOf(response).at("param").as_string());
  };
  EXPECT_EQ(param(R"({"frame_ms":100})"), "kvist.frame_ms");
  EXPECT_EQ(param(R"({"window":100})"), "kvist.window");
  EXPECT_EQ(param(R"({"session":"a","frame_ms":0})"), "kvist.frame_ms");
  EXPECT_EQ(param(R"({"session":"a","window":15})"), "kvist.window");
  EXPECT_EQ(param(R"({"session":"a","window":16,"keep_tool_results":1})"), "kvist.window");
  const HttpResponse text =
      Post(world_.port(), "/v1/completions", R"({"prompt":"a","kvist":{"session":"a","frame_ms":100}})");
  EXPECT_EQ(text.status, 400);
}

}  // namespace
}  // namespace kvist::serve
