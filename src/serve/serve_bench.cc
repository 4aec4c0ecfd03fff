/// @file
/// What the server costs beside the model: processor time per streamed token with many streams open, and the parsing of
/// large requests. Goals: at most 50 us a token with 200 streams that write and 2,000 that wait, everything but the
/// client counted (engine, network, kernel's side of its sockets); at most 5 ms for a request of 1 MB.

#include <benchmark/benchmark.h>

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "platform/open_files.h"
#include "serve/fake_world_testutil.h"
#include "serve/http_testutil.h"
#include "serve/request.h"

namespace kvist::serve {
namespace {

using std::chrono::steady_clock;

constexpr uint32_t kActive = 200, kIdle = 2000;

double CpuSeconds(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Of this process, without this thread, which is the client's.
double ServerCpuSeconds() {
  return CpuSeconds(RUSAGE_SELF) - CpuSeconds(RUSAGE_THREAD);
}

/// Reads from many connections and counts events.
class Readers {
 public:
  Readers() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {}
  ~Readers() { close(epoll_); }

  void Add(const HttpClient& client) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = client.descriptor()}};
    KVIST_CHECK(epoll_ctl(epoll_, EPOLL_CTL_ADD, client.descriptor(), &event) == 0);
  }

  /// Until so many events have come, or the time is over. @return those that came
  uint64_t Read(uint64_t events, steady_clock::duration limit) {
    const auto end = steady_clock::now() + limit;
    uint64_t seen = 0;
    while (seen < events && steady_clock::now() < end) {
      std::array<epoll_event, 64> ready{};
      const int count = epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), 100);
      for (int i = 0; i < count; ++i) {
        const ssize_t got = recv(ready[static_cast<size_t>(i)].data.fd, piece_.data(), piece_.size(), MSG_DONTWAIT);
        if (got > 0) seen += CountOf({piece_.data(), static_cast<size_t>(got)});
      }
    }
    return seen;
  }

 private:
  static uint64_t CountOf(std::string_view text) {
    uint64_t count = 0;
    for (size_t at = text.find("data: "); at != std::string_view::npos; at = text.find("data: ", at + 6)) ++count;
    return count;
  }

  const int epoll_;
  std::vector<char> piece_ = std::vector<char>(1 << 16);
};

void StreamedToken(benchmark::State& state) {
  RaiseOpenFilesLimit();
  FakeWorldOptions options;
  options.model_path = KVIST_SOURCE_DIR "/models/default-q8_0.gguf";
  options.requests_max = kActive;
  options.waiting_max = 2 * kIdle;
  options.context_tokens_max = 1 << 17;
  options.step_time = std::chrono::milliseconds(20);  // So that each token is a write of its own.
  options.server.limits.connections_max = 2 * (kActive + kIdle);
  FakeWorld world(options);
  const std::string path = state.range(0) == 0   ? "/v1/chat/completions"
                           : state.range(0) == 1 ? "/v1/messages"
                                                 : "/api/chat";
  const std::string body =
      R"({"model":"fake","messages":[{"role":"user","content":"hello"}],"max_tokens":100000,"stream":true})";
  Readers readers;
  std::vector<HttpClient> clients;
  for (uint32_t i = 0; i < kActive + kIdle; ++i) {
    clients.emplace_back(world.port());
    KVIST_CHECK(clients.back().SendPost(path, body));
    readers.Add(clients.back());
  }
  KVIST_CHECK(world.WaitForStats(
      [](const engine::EngineStats& stats) { return stats.running == kActive && stats.waiting == kIdle; }));
  readers.Read(10 * kActive, std::chrono::seconds(30));
  uint64_t events = 0;
  double cpu_s = 0;
  for (auto _ : state) {
    const double before = ServerCpuSeconds();
    const auto start = steady_clock::now();
    events += readers.Read(50 * kActive, std::chrono::seconds(30));
    state.SetIterationTime(std::chrono::duration<double>(steady_clock::now() - start).count());
    cpu_s += ServerCpuSeconds() - before;
  }
  state.counters["cpu_us_per_token"] = cpu_s * 1e6 / static_cast<double>(events);
  state.counters["tokens_per_s"] = benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
}
BENCHMARK(StreamedToken)
    ->ArgName("protocol")
    ->Arg(0)
    ->Arg(1)
    ->UseManualTime()
    ->Iterations(3)
    ->Unit(benchmark::kMillisecond);

/// A chat of one message of 1 MB.
void ParseMegabyte(benchmark::State& state) {
  std::string text;
  while (text.size() < 1'000'000) text += "The wind was \\\"soft\\\" that day, and so on.\\n";
  const std::string body = R"({"messages":[{"role":"user","content":")" + text + "\"}]}";
  for (auto _ : state) {
    const auto request = ParseChatRequest(body, {.model_id = "fake", .vocab_size = 1000});
    KVIST_CHECK(request.ok());
    benchmark::DoNotOptimize(request);
  }
}
BENCHMARK(ParseMegabyte)->Unit(benchmark::kMillisecond);

/// A completion of 150,000 token ids: 1 MB.
void ParseTokens(benchmark::State& state) {
  std::string body = R"({"prompt":[1)";
  for (uint32_t i = 0; i < 150'000; ++i) body += "," + std::to_string(100'000 + i % 50'000);
  body += "]}";
  for (auto _ : state) {
    const auto request = ParseCompletionRequest(body, {.model_id = "fake", .vocab_size = 200'000});
    KVIST_CHECK(request.ok());
    benchmark::DoNotOptimize(request);
  }
}
BENCHMARK(ParseTokens)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kvist::serve
