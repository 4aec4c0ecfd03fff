#include "serve/batch.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json.hpp>

#include "base/status.h"

namespace kvist::serve {

namespace asio = boost::asio;
using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr milliseconds kProgressEvery(200), kFirstPause(500), kLongestPause(30'000);
constexpr std::chrono::hours kAnswerWithin(24);  // What runs below everything else may wait for long.
constexpr uint32_t kConnectsMax = 5, kCutsMax = 3;

void CountTokens(const std::string& body, BatchProgress& progress) {
  boost::system::error_code error;
  const boost::json::value value = boost::json::parse(body, error);
  if (error) return;
  const auto count = [&](const char* pointer) -> uint64_t {
    boost::system::error_code ignored;
    const boost::json::value* found = value.find_pointer(pointer, ignored);
    return found != nullptr && found->is_int64() && found->get_int64() > 0 ? static_cast<uint64_t>(found->get_int64())
                                                                           : 0;
  };
  progress.prompt_tokens += count("/usage/prompt_tokens");
  progress.cached_tokens += count("/usage/prompt_tokens_details/cached_tokens");
  progress.output_tokens += count("/usage/completion_tokens");
}

class Batch {
 public:
  Batch(std::vector<BatchRequest> requests, BatchOutput& output, const BatchOptions& options)
      : requests_(std::move(requests)),
        output_(output),
        options_(options),
        client_(io_, options.url, options.trust),
        tick_(io_) {}

  absl::Status Go() {
    KVIST_RETURN_IF_ERROR(client_.Resolve());
    progress_.total = requests_.size();
    const size_t workers = std::min<size_t>(options_.concurrency, requests_.size());
    for (size_t i = 0; i < workers; ++i) {
      pauses_.push_back(std::make_unique<asio::steady_timer>(io_));
      asio::co_spawn(io_, Work(*pauses_.back()), asio::detached);
    }
    working_ = workers;
    asio::co_spawn(io_, Watch(), asio::detached);
    io_.run();
    Tell();
    return status_;
  }

 private:
  void Tell() {
    progress_.elapsed_s = std::chrono::duration<double>(SteadyClock::now() - begin_).count();
    if (options_.progress && !options_.progress(progress_)) Stop(absl::CancelledError("interrupted"));
  }
  /// The first reason counts.
  void Stop(absl::Status why) {
    if (!status_.ok()) return;
    status_ = std::move(why);
    client_.Stop();
    for (const auto& pause : pauses_) pause->cancel();
  }
  asio::awaitable<void> Watch();
  asio::awaitable<void> Work(asio::steady_timer& pause);
  asio::awaitable<void> Answer(const BatchRequest& request, asio::steady_timer& pause);
  void Write(const std::string& line, bool answered);

  std::vector<BatchRequest> requests_;
  BatchOutput& output_;
  const BatchOptions& options_;
  asio::io_context io_{1};
  PostClient client_;
  asio::steady_timer tick_;
  std::vector<std::unique_ptr<asio::steady_timer>> pauses_;
  const SteadyClock::time_point begin_ = SteadyClock::now();
  BatchProgress progress_;
  size_t next_ = 0, working_ = 0;
  absl::Status status_;
};

asio::awaitable<void> Batch::Watch() {
  while (working_ > 0) {
    tick_.expires_after(kProgressEvery);
    co_await tick_.async_wait(kAwait);
    if (status_.ok() && working_ > 0) Tell();
  }
}

asio::awaitable<void> Batch::Work(asio::steady_timer& pause) {
  while (status_.ok() && next_ < requests_.size()) {
    const BatchRequest request = std::move(requests_[next_++]);
    co_await Answer(request, pause);
  }
  if (--working_ == 0) tick_.cancel();
}

void Batch::Write(const std::string& line, bool answered) {
  ++(answered ? progress_.answered : progress_.failed);
  if (absl::Status written = output_.Append(line); !written.ok()) Stop(std::move(written));
}

asio::awaitable<void> Batch::Answer(const BatchRequest& request, asio::steady_timer& pause) {
  milliseconds wait = kFirstPause;
  uint32_t connects = 0, cuts = 0;
  while (status_.ok()) {
    HttpPost post{.path = request.path, .body = request.body, .api_key = options_.api_key, .limit = kAnswerWithin};
    const HttpAnswer answer = co_await client_.Post(std::move(post), nullptr);
    milliseconds asked(0);
    if (answer.end == HttpEnd::kStopped) co_return;
    if (answer.end == HttpEnd::kUnreachable) {
      // Nothing came yet: the address is wrong. Later: the server may be starting again.
      const bool seen = progress_.answered + progress_.failed > 0;
      if (!seen || ++connects == kConnectsMax) {
        Stop(absl::UnavailableError(answer.why));
        co_return;
      }
    } else if (answer.end == HttpEnd::kWhole && (answer.status == 429 || answer.status == 503)) {
      asked = milliseconds(static_cast<int64_t>(std::min(answer.retry_after_s.value_or(0), 3600.0) * 1000));
    } else if (answer.end == HttpEnd::kWhole) {
      if (answer.status == 200) CountTokens(answer.body, progress_);
      Write(BatchAnswerLine(request, answer.status, answer.request_id, answer.body), answer.status == 200);
      co_return;
    } else if (answer.end != HttpEnd::kCutOff || ++cuts == kCutsMax) {
      const char* code = answer.end == HttpEnd::kTimedOut ? "timed_out"
                         : answer.end == HttpEnd::kCutOff ? "cut_off"
                                                          : "too_large";
      Write(BatchErrorLine(request.custom_id, code, answer.why, 0), false);
      co_return;
    }
    ++progress_.retries;
    pause.expires_after(std::max(wait, asked));
    co_await pause.async_wait(kAwait);
    wait = std::min(wait * 2, kLongestPause);
  }
}

}  // namespace

absl::Status RunBatch(std::vector<BatchRequest> requests, BatchOutput& output, const BatchOptions& options) {
  return Batch(std::move(requests), output, options).Go();
}

}  // namespace kvist::serve
