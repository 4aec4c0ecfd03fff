#include "lab/load_run.h"

#include <algorithm>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json.hpp>

#include "base/status.h"
#include "lab/load_answer.h"
#include "serve/event_stream.h"

namespace kvist::lab {

namespace asio = boost::asio;
namespace json = boost::json;
using serve::HttpAnswer;
using serve::HttpEnd;
using SteadyClock = std::chrono::steady_clock;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kProgressEvery(200);
/// A closed loop that is refused does not turn into a flood.
constexpr std::chrono::milliseconds kAfterFailure(100);

LoadOutcome OutcomeOf(const HttpAnswer& answer) {
  switch (answer.end) {
    case HttpEnd::kUnreachable:
      return LoadOutcome::kUnreachable;
    case HttpEnd::kTimedOut:
      return LoadOutcome::kTimedOut;
    case HttpEnd::kCutOff:
    case HttpEnd::kTooLarge:
      return LoadOutcome::kCutOff;
    case HttpEnd::kStopped:
      return LoadOutcome::kInterrupted;
    case HttpEnd::kWhole:
      break;
  }
  if (answer.status == 200) return LoadOutcome::kAnswered;
  return answer.status == 429 || answer.status == 503 ? LoadOutcome::kRefused : LoadOutcome::kHttpError;
}

/// One run: a driver that begins conversations, and a coroutine for each.
class Run {
 public:
  Run(LoadPlan& plan, const LoadRunOptions& options)
      : plan_(plan),
        options_(options),
        client_(io_, options.url, options.trust),
        room_(io_),
        progress_timer_(io_),
        wait_(io_) {}

  absl::StatusOr<LoadResult> Go() {
    KVIST_RETURN_IF_ERROR(client_.Resolve());
    begin_ = SteadyClock::now();
    asio::co_spawn(io_, Drive(), asio::detached);
    asio::co_spawn(io_, Report(), asio::detached);
    io_.run();
    double first = result_.records.empty() ? 0 : result_.records.front().due_s;
    for (const LoadRecord& record : result_.records) {
      first = std::min(first, record.due_s);
      if (record.outcome != LoadOutcome::kInterrupted || result_.interrupted) {
        result_.duration_s = std::max(result_.duration_s, record.end_s);
      }
    }
    result_.duration_s -= first;
    return std::move(result_);
  }

 private:
  double Now() const { return std::chrono::duration<double>(SteadyClock::now() - begin_).count(); }
  asio::awaitable<void> Drive();
  asio::awaitable<void> Report();
  asio::awaitable<void> WaitUntil(double at_s);
  asio::awaitable<void> Converse(PlannedConversation conversation, double due_s);
  asio::awaitable<std::string> Ask(const PlannedConversation& conversation, const std::vector<std::string>& answers,
                                   LoadRecord& record);

  LoadPlan& plan_;
  const LoadRunOptions& options_;
  asio::io_context io_{1};
  serve::PostClient client_;
  asio::steady_timer room_;  ///< Cancelled when a conversation ends.
  asio::steady_timer progress_timer_, wait_;
  SteadyClock::time_point begin_;
  LoadProgress progress_;
  uint32_t conversations_ = 0;  ///< Under way.
  bool driven_ = false, stop_ = false;
  LoadResult result_;
};

asio::awaitable<void> Run::WaitUntil(double at_s) {
  wait_.expires_at(begin_ + std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(at_s)));
  co_await wait_.async_wait(kAwait);
}

asio::awaitable<void> Run::Drive() {
  while (!stop_) {
    if (!plan_.open_loop() && options_.seconds > 0 && Now() >= options_.seconds) break;
    std::optional<PlannedConversation> next = plan_.Next();
    if (!next) break;
    if (next->at_s) co_await WaitUntil(*next->at_s);
    while (!stop_ && options_.concurrency > 0 && conversations_ >= options_.concurrency) {
      room_.expires_at(SteadyClock::time_point::max());
      co_await room_.async_wait(kAwait);
    }
    // The time may have passed while there was no room.
    if (!plan_.open_loop() && options_.seconds > 0 && Now() >= options_.seconds) break;
    if (stop_) break;
    const double due_s = next->at_s.value_or(Now());
    ++conversations_;
    asio::co_spawn(io_, Converse(*std::move(next), due_s), asio::detached);
  }
  driven_ = true;
  if (conversations_ == 0) progress_timer_.cancel();
}

asio::awaitable<void> Run::Report() {
  while (!driven_ || conversations_ > 0) {
    progress_timer_.expires_after(kProgressEvery);
    co_await progress_timer_.async_wait(kAwait);
    progress_.elapsed_s = Now();
    if (stop_ || !options_.progress || options_.progress(progress_)) continue;
    stop_ = result_.interrupted = true;
    client_.Stop();
    wait_.cancel();
    room_.cancel();
  }
}

asio::awaitable<void> Run::Converse(PlannedConversation conversation, double due_s) {
  std::vector<std::string> answers;
  while (answers.size() < conversation.turns.size() && !stop_) {
    LoadRecord record{.conversation = conversation.index,
                      .turn = static_cast<uint32_t>(answers.size()),
                      .tenant = conversation.tenant,
                      .due_s = due_s};
    answers.push_back(co_await Ask(conversation, answers, record));
    due_s = record.end_s;
    const bool answered = record.answered();
    ++(answered ? progress_.answered : progress_.failed);
    result_.records.push_back(std::move(record));
    if (answered) continue;
    if (!plan_.open_loop() && !stop_) {
      asio::steady_timer pause(io_, kAfterFailure);
      co_await pause.async_wait(kAwait);
    }
    break;
  }
  --conversations_;
  room_.cancel();
  if (driven_ && conversations_ == 0) progress_timer_.cancel();
}

/// @return  the answer's text
asio::awaitable<std::string> Run::Ask(const PlannedConversation& conversation, const std::vector<std::string>& answers,
                                      LoadRecord& record) {
  serve::HttpPost post{.path = options_.chat ? "/v1/chat/completions" : "/v1/completions",
                       .body = LoadRequestBody(conversation, answers, options_),
                       .api_key = plan_.tenants()[conversation.tenant].api_key,
                       .limit = options_.timeout};
  serve::EventStreamReader events;
  AnswerReader reader;
  absl::Status fault;
  serve::PostClient::PieceSink on_piece = [&](std::string_view piece) {
    const double now = Now();
    const absl::Status status = events.Feed(piece, [&](std::string_view name, std::string_view data) {
      if (!fault.ok()) return;
      const absl::StatusOr<bool> text = reader.TakeEvent(name, data);
      if (!text.ok()) fault = text.status();
      if (!text.ok() || !*text) return;
      record.text_s.push_back(now);
      ++progress_.pieces;
    });
    if (fault.ok()) fault = status;
  };
  ++progress_.sent;
  ++progress_.running;
  record.sent_s = Now();
  const HttpAnswer answer = co_await client_.Post(std::move(post), std::move(on_piece));
  record.end_s = Now();
  --progress_.running;
  record.status = answer.status;
  record.outcome = OutcomeOf(answer);
  record.why = answer.why;
  if (record.answered() && !answer.body.empty()) {  // The server did not stream.
    fault = reader.TakeWhole(answer.body);
    if (fault.ok()) record.text_s.push_back(record.end_s);
  }
  if (record.answered() && fault.ok() && !reader.done()) fault = absl::DataLossError("the stream ended without an end");
  if (record.answered() && !fault.ok()) {
    record.outcome = LoadOutcome::kStreamError;
    record.why = std::string(fault.message());
  } else if (!record.answered() && record.why.empty()) {
    record.why = ErrorMessageOf(answer.body);
  }
  record.prompt_tokens = reader.prompt_tokens.value_or(0);
  record.cached_tokens = std::min(reader.cached_tokens, record.prompt_tokens);
  record.counted_by_server = reader.output_tokens.has_value();
  record.output_tokens = reader.output_tokens.value_or(static_cast<uint32_t>(record.text_s.size()));
  co_return reader.text();
}

json::value MessagesOf(const PlannedConversation& conversation, const std::vector<std::string>& answers) {
  json::array messages;
  const auto add = [&](const char* role, const std::string& content) {
    messages.push_back({{"role", role}, {"content", content}});
  };
  if (!conversation.system.empty()) add("system", conversation.system);
  for (size_t i = 0; i <= answers.size(); ++i) {
    add("user", conversation.turns[i].text);
    if (i < answers.size()) add("assistant", answers[i]);
  }
  return messages;
}

json::value PromptOf(const PlannedConversation& conversation, const std::vector<std::string>& answers) {
  const PlannedTurn& turn = conversation.turns[answers.size()];
  if (!turn.tokens.empty()) {
    json::array ids;
    for (const TokenId token : turn.tokens) ids.emplace_back(token.value);
    return ids;
  }
  std::string text = conversation.system;
  for (size_t i = 0; i <= answers.size(); ++i) {
    if (!text.empty()) text += '\n';
    text += conversation.turns[i].text;
    if (i < answers.size()) text += answers[i];
  }
  return json::value(text);
}

}  // namespace

std::string LoadRequestBody(const PlannedConversation& conversation, const std::vector<std::string>& answers,
                            const LoadRunOptions& options) {
  json::object body;
  if (!options.model.empty()) body["model"] = options.model;
  if (options.chat) {
    body["messages"] = MessagesOf(conversation, answers);
  } else {
    body["prompt"] = PromptOf(conversation, answers);
  }
  body["max_tokens"] = conversation.turns[answers.size()].max_tokens;
  body["temperature"] = 0;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  for (const auto& member : options.more) body[member.key()] = member.value();
  return json::serialize(body);
}

absl::StatusOr<LoadResult> RunLoad(LoadPlan& plan, const LoadRunOptions& options) {
  return Run(plan, options).Go();
}

}  // namespace kvist::lab
