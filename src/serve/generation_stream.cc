#include "serve/generation_stream.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <spdlog/spdlog.h>

#include "base/check.h"

namespace kvist::serve {

GenerationStream::GenerationStream(StreamHost& host, PreparedRequest request, TimeNs received_at)
    : host_(host),
      writer_(std::move(request.reply), host.tokenizer),
      request_(std::move(request.generation)),
      session_(std::move(request.session)),
      cache_namespace_(request_.cache_namespace) {
  if (!session_.empty()) history_ = {request_.prompt, request_.ops};
  record_.received_at = received_at;
}

void GenerationStream::Start(std::function<void()> wake) {
  wake_ = std::move(wake);
  submitted_at_ = host_.clock.Now();
  // The engine keeps the stream alive until the last event.
  auto sink = [self = shared_from_this(), post = host_.post](engine::GenerationEvent&& event) {
    post([self, event = std::move(event)]() mutable { self->OnEvent(std::move(event)); });
  };
  engine_id_ = host_.engine.Submit(std::move(request_), std::move(sink));
}

void GenerationStream::Cancel() {
  if (!done_ && engine_id_.has_value()) host_.engine.Cancel(*engine_id_);
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
  if (std::exchange(begun_, true) || !writer_.info().stream) return;
  if (const std::string chunk = writer_.BeginChunk(); !chunk.empty()) output_ += SseEvent(chunk);
}

void GenerationStream::OnEvent(engine::GenerationEvent&& event) {
  if (done_) return;  // Cancelled; what was under way no longer matters.
  record_.usage = event.usage;
  if (event.usage.output_tokens > 0 && record_.first_token_at == kTimeNever) record_.first_token_at = host_.clock.Now();
  if (event.finish == engine::FinishReason::kError || event.finish == engine::FinishReason::kCancelled) {
    // Nobody here cancelled it: the engine is stopping.
    error_ = ErrorFromStatus(event.finish == engine::FinishReason::kError
                                 ? event.status
                                 : absl::UnavailableError("the server is shutting down"));
    return End(engine::FinishReason::kError);
  }
  if (!session_.empty()) {
    history_.tokens.insert(history_.tokens.end(), event.token_ids.begin(), event.token_ids.end());
  }
  Begin();
  Append(event);
  if (event.finish != engine::FinishReason::kNone) return End(event.finish);
  if (writer_.info().stream && output_.size() > host_.output_bytes_max) {
    overflowed_ = true;
    Cancel();
    return End(engine::FinishReason::kCancelled);
  }
  if (wake_) wake_();
}

void GenerationStream::Append(engine::GenerationEvent& event) {
  if (!writer_.info().logprobs) event.tokens.clear();
  if (writer_.info().stream) {
    // A token without text (an ignored end, a character's first half) is no news.
    if (!event.text.empty() || !event.tokens.empty()) output_ += SseEvent(writer_.TextChunk(event));
    return;
  }
  output_ += event.text;
  std::ranges::move(event.tokens, std::back_inserter(tokens_));
}

void GenerationStream::End(engine::FinishReason reason) {
  done_ = true;
  record_.reason = reason;
  record_.finished_at = host_.clock.Now();
  host_.metrics.Observe(record_);
  // Whatever came out: it has been read, and what the client sends next may go on from it.
  if (!session_.empty() && !error_.has_value()) {
    host_.sessions.Store(cache_namespace_, session_, std::move(history_));
  }
  spdlog::debug("{}: {} + {} tokens, {} cached, {}", writer_.info().id, record_.usage.prompt_tokens,
                record_.usage.output_tokens, record_.usage.cached_tokens, FinishReasonName(reason));
  if (writer_.info().stream) EmitEnd();
  if (wake_) std::exchange(wake_, nullptr)();
}

void GenerationStream::EmitEnd() {
  if (error_.has_value()) {
    // Before the stream has begun the status line can still tell; see StreamOut in http_connection.cc.
    if (begun_) output_ += SseEvent(ErrorBody(*error_));
    return;
  }
  if (record_.reason == engine::FinishReason::kCancelled) return;
  output_ += SseEvent(writer_.FinishChunk(record_.reason));
  if (writer_.info().include_usage) output_ += SseEvent(writer_.UsageChunk(record_.usage, Timings()));
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
  KVIST_CHECK(done_ && !error_.has_value() && !writer_.info().stream);
  return writer_.Whole(output_, tokens_, record_.reason, record_.usage, Timings());
}

}  // namespace kvist::serve
