#include "serve/generation_stream.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <spdlog/spdlog.h>

#include "base/check.h"

namespace kvist::serve {

GenerationStream::GenerationStream(StreamHost& host, PreparedRequest request, TimeNs received_at)
    : host_(host),
      info_(std::move(request.reply)),
      request_(std::move(request.generation)),
      session_(std::move(request.session)),
      cache_namespace_(request_.cache_namespace),
      turn_(std::move(request.turn)) {
  if (!session_.empty()) history_ = {request_.prompt, request_.ops};
  choices_.reserve(info_.choices);
  for (uint32_t i = 0; i < info_.choices; ++i) choices_.push_back({.writer{info_, host.tokenizer, i}});
  choices_running_ = choices_.size();
  record_.received_at = received_at;
}

void GenerationStream::Start(std::function<void()> wake) {
  wake_ = std::move(wake);
  submitted_at_ = host_.clock.Now();
  for (size_t i = 0; i < choices_.size(); ++i) {
    // The engine keeps the stream alive until the last event.
    auto sink = [self = shared_from_this(), i, post = host_.post](engine::GenerationEvent&& event) {
      post([self, i, event = std::move(event)]() mutable { self->OnEvent(i, std::move(event)); });
    };
    engine::GenerationRequest request = i + 1 < choices_.size() ? request_ : std::move(request_);
    request.sampling.seed += i;
    if (i > 0) request.mass_ranges.clear();
    choices_[i].engine_id = host_.engine.Submit(std::move(request), std::move(sink));
    host_.request_log.Name(*choices_[i].engine_id, info_.id);
  }
}

void GenerationStream::Cancel() {
  if (done_) return;
  for (const Choice& choice : choices_) {
    if (choice.engine_id.has_value()) host_.engine.Cancel(*choice.engine_id);
  }
}

void GenerationStream::Abort() {
  if (done_) return;
  Cancel();
  wake_ = nullptr;
  End(engine::FinishReason::kCancelled);
}

void GenerationStream::Fail(ApiError error) {
  if (done_) return;
  Cancel();
  error_ = std::move(error);
  End(engine::FinishReason::kError);
}

void GenerationStream::Begin() {
  if (std::exchange(begun_, true) || !info_.stream) return;
  for (const Choice& choice : choices_) {
    if (const std::string chunk = choice.writer.BeginChunk(); !chunk.empty()) output_ += SseEvent(chunk);
  }
}

void GenerationStream::OnEvent(size_t index, engine::GenerationEvent&& event) {
  Choice& choice = choices_[index];
  if (event.trace != nullptr) choice.trace = event.trace;
  if (done_) {  // Cancelled; what was under way no longer matters.
    if (event.trace != nullptr) host_.request_log.AddTrace(info_.id, index, std::move(event.trace));
    return;
  }
  choice.output_tokens = event.usage.output_tokens;
  if (index == 0) record_.usage = event.usage;
  record_.usage.output_tokens = 0;
  for (const Choice& one : choices_) record_.usage.output_tokens += one.output_tokens;
  if (event.usage.output_tokens > 0 && record_.first_token_at == kTimeNever) record_.first_token_at = host_.clock.Now();
  if (event.finish == engine::FinishReason::kError || event.finish == engine::FinishReason::kCancelled) {
    // Nobody here cancelled it: the engine is stopping.
    error_ = ErrorFromStatus(event.finish == engine::FinishReason::kError
                                 ? event.status
                                 : absl::UnavailableError("the server is shutting down"));
    Cancel();
    return End(engine::FinishReason::kError);
  }
  if (turn_ && !event.range_mass.empty()) Observe(event.range_mass, *turn_);
  if (!session_.empty() && index == 0) {
    history_.tokens.insert(history_.tokens.end(), event.token_ids.begin(), event.token_ids.end());
  }
  Begin();
  Append(choice, event);
  if (event.finish != engine::FinishReason::kNone) {
    EndChoice(choice, event);
    if (choices_running_ == 0) return End(choices_[0].reason);
  }
  if (info_.stream && output_.size() > host_.output_bytes_max) {
    overflowed_ = true;
    Cancel();
    return End(engine::FinishReason::kCancelled);
  }
  if (wake_) wake_();
}

void GenerationStream::Append(Choice& choice, engine::GenerationEvent& event) {
  if (!info_.logprobs) event.tokens.clear();
  if (info_.stream) {
    // A token without text (an ignored end, a character's first half) is no news.
    if (!event.text.empty() || !event.tokens.empty()) output_ += SseEvent(choice.writer.TextChunk(event));
    return;
  }
  choice.text += event.text;
  std::ranges::move(event.tokens, std::back_inserter(choice.tokens));
}

void GenerationStream::EndChoice(Choice& choice, const engine::GenerationEvent& event) {
  choice.reason = event.finish;
  --choices_running_;
  if (event.capsule != nullptr) choice.capsule = host_.capsules.Store(event.capsule, host_.unix_now_s());
  if (info_.stream) output_ += SseEvent(choice.writer.FinishChunk(choice.reason, choice.capsule));
}

void GenerationStream::End(engine::FinishReason reason) {
  done_ = true;
  record_.reason = reason;
  record_.finished_at = host_.clock.Now();
  if (turn_) {
    for (const TurnMessage& message : turn_->messages) {
      if (!message.fades_now) continue;
      ++record_.faded_messages;
      record_.faded_tokens += message.tokens.end - message.tokens.begin;
    }
  }
  host_.metrics.Observe(record_);
  Log();
  // Whatever came out: it has been read, and what the client sends next may go on from it.
  if (!session_.empty() && !error_.has_value()) {
    host_.sessions.Store(cache_namespace_, session_,
                         {std::move(history_), turn_ ? StatesOf(*turn_) : std::vector<MessageState>{}});
  }
  spdlog::debug("{}: {} + {} tokens, {} cached, {}", info_.id, record_.usage.prompt_tokens, record_.usage.output_tokens,
                record_.usage.cached_tokens, FinishReasonName(reason));
  if (info_.stream) EmitEnd();
  if (wake_) std::exchange(wake_, nullptr)();
}

void GenerationStream::Log() {
  LoggedRequest entry{.id = info_.id,
                      .chat = info_.chat,
                      .created_unix_s = info_.created_unix_s,
                      .received_at = record_.received_at,
                      .submitted_at = submitted_at_,
                      .finished_at = record_.finished_at,
                      .reason = record_.reason,
                      .http_status = error_.has_value() ? error_->http_status : 200,
                      .usage = record_.usage};
  for (const Choice& choice : choices_) {
    if (choice.engine_id.has_value()) entry.engine_ids.push_back(*choice.engine_id);
    entry.traces.push_back(choice.trace);
  }
  host_.request_log.Add(std::move(entry));
}

void GenerationStream::EmitEnd() {
  if (error_.has_value()) {
    // Before the stream has begun the status line can still tell; see StreamOut in http_connection.cc.
    if (begun_) output_ += SseEvent(ErrorBody(*error_));
    return;
  }
  if (record_.reason == engine::FinishReason::kCancelled) return;
  if (info_.include_usage) output_ += SseEvent(UsageChunk(info_, record_.usage, Timings(), turn_ ? &*turn_ : nullptr));
  output_ += kSseDone;
}

ReplyTimings GenerationStream::Timings() const {
  ReplyTimings timings{.total_ms = Seconds(record_.finished_at - record_.received_at) * 1e3};
  if (record_.first_token_at == kTimeNever) return timings;
  timings.ttft_ms = Seconds(record_.first_token_at - record_.received_at) * 1e3;
  timings.prompt_ms = Seconds(record_.first_token_at - submitted_at_) * 1e3;
  const double rest_s = Seconds(record_.finished_at - record_.first_token_at);
  if (record_.usage.output_tokens > 1 && rest_s > 0)
    timings.output_tokens_per_s = (record_.usage.output_tokens - 1) / rest_s;
  return timings;
}

std::string GenerationStream::TakeOutput() {
  return std::exchange(output_, std::string());
}

std::string GenerationStream::Whole() {
  KVIST_CHECK(done_ && !error_.has_value() && !info_.stream);
  boost::json::array choices;
  for (Choice& choice : choices_) {
    choices.push_back(choice.writer.WholeChoice(choice.text, choice.tokens, choice.reason, choice.capsule));
  }
  return WholeBody(info_, std::move(choices), record_.usage, Timings(), turn_ ? &*turn_ : nullptr);
}

}  // namespace kvist::serve
