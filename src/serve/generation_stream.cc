#include "serve/generation_stream.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <spdlog/spdlog.h>

#include "base/check.h"
#include "telemetry/log.h"

namespace kvist::serve {

namespace {

constexpr double kProgressSeconds = 1;

}  // namespace

GenerationStream::GenerationStream(StreamHost& host, PreparedRequest request, TimeNs received_at)
    : host_(host),
      format_(std::move(request.format)),
      info_(format_->info()),
      generations_(std::move(request.generations)),
      session_(std::move(request.session)),
      cache_namespace_(generations_.at(0).cache_namespace),
      tenant_(generations_.at(0).tenant),
      frame_(std::move(request.frame)),
      turn_(std::move(request.turn)),
      choices_(generations_.size() * info_.choices),
      choices_running_(choices_.size()) {
  if (!session_.empty()) history_ = {generations_[0].prompt, generations_[0].ops};
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (request.syntax != nullptr) choices_[i].parser = NewOutputParser(request.syntax);
    choices_[i].usage.prompt_tokens = static_cast<uint32_t>(generations_[i / info_.choices].prompt.size());
  }
  SumUsage();
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
    const size_t fork = i % info_.choices;
    engine::GenerationRequest& generation = generations_[i / info_.choices];
    engine::GenerationRequest request = fork + 1 < info_.choices ? generation : std::move(generation);
    request.sampling.seed += fork;
    if (i > 0) request.mass_ranges.clear();
    request.want_progress = i == 0 && info_.stream;
    // Each prompt of several is metered as a request of its own: its first choice has the prompt's tokens.
    const size_t prompt = i / info_.choices;
    request.name = prompt == 0 ? info_.id : info_.id + "/" + std::to_string(prompt);
    request.choice = static_cast<uint32_t>(fork);
    choices_[i].engine_id = host_.engine.Submit(std::move(request), std::move(sink));
    host_.request_log.Name(*choices_[i].engine_id, info_.id, tenant_);
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
  format_->Begin(static_cast<uint32_t>(choices_.size()), record_.usage, output_);
}

/// Tells a stream that has begun, from time to time. A short prompt is read before anybody asks.
void GenerationStream::OnProgress(const engine::GenerationEvent& event) {
  const TimeNs now = host_.clock.Now();
  if (!begun_ || Seconds(now - progress_at_) < kProgressSeconds) return;
  progress_at_ = now;
  format_->Progress(event.prompt_read, event.usage.prompt_tokens, output_);
  if (wake_) wake_();
}

void GenerationStream::OnEvent(size_t index, engine::GenerationEvent&& event) {
  Choice& choice = choices_[index];
  if (event.trace != nullptr) choice.trace = event.trace;
  if (done_) {  // Cancelled; what was under way no longer matters.
    if (event.trace != nullptr) host_.request_log.AddTrace(info_.id, index, std::move(event.trace));
    return;
  }
  choice.usage = event.usage;
  SumUsage();
  if (event.prompt_read > 0) return OnProgress(event);
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
  Append(index, event);
  if (event.finish != engine::FinishReason::kNone) {
    EndChoice(index, event);
    if (choices_running_ == 0) return End(choices_[0].output.end.reason);
  }
  if (info_.stream && output_.size() > host_.output_bytes_max) {
    overflowed_ = true;
    Cancel();
    return End(engine::FinishReason::kCancelled);
  }
  if (wake_) wake_();
}

/// Of all choices: output is the sum, a prompt counts once however many choices it has.
void GenerationStream::SumUsage() {
  engine::Usage& sum = record_.usage;
  sum = {};
  for (size_t i = 0; i < choices_.size(); ++i) {
    const engine::Usage& usage = choices_[i].usage;
    sum.output_tokens += usage.output_tokens;
    if (i % info_.choices != 0) continue;
    sum.prompt_tokens += usage.prompt_tokens;
    sum.cached_tokens += usage.cached_tokens;
    sum.dropped_tokens += usage.dropped_tokens;
    sum.pinned_blocks += usage.pinned_blocks;
    sum.not_pinned_blocks += usage.not_pinned_blocks;
  }
}

/// The parts that are certain with the text of this event.
std::vector<OutputPart> GenerationStream::TakeParts(Choice& choice, engine::GenerationEvent& event) {
  std::vector<OutputPart> parts;
  if (choice.parser != nullptr) {
    choice.parser->Push(event.text, parts);
    if (event.finish != engine::FinishReason::kNone) choice.parser->Finish(parts);
    choice.output.end.calls = choice.parser->calls() > 0;
    return parts;
  }
  if (!event.text.empty()) parts.push_back({.text = std::move(event.text)});
  return parts;
}

void GenerationStream::Append(size_t index, engine::GenerationEvent& event) {
  Choice& choice = choices_[index];
  if (!event.prompt_logprobs.empty()) {
    if (info_.stream) {
      format_->AddPrompt(static_cast<uint32_t>(index), event.prompt_logprobs, output_);
    } else {
      choice.output.prompt = std::move(event.prompt_logprobs);
    }
  }
  if (!info_.logprobs) event.tokens.clear();
  std::vector<OutputPart> parts = TakeParts(choice, event);
  if (info_.stream) {
    // A token without text (an ignored end, a character's first half) is no news.
    if (!parts.empty() || !event.tokens.empty()) {
      format_->Add(static_cast<uint32_t>(index), parts, event.tokens, output_);
    }
    return;
  }
  for (OutputPart& part : parts) choice.output.Append(std::move(part));
  std::ranges::move(event.tokens, std::back_inserter(choice.output.tokens));
}

void GenerationStream::EndChoice(size_t index, const engine::GenerationEvent& event) {
  ChoiceEnd& end = choices_[index].output.end;
  end.reason = event.finish;
  end.stop = event.stop;
  end.stop_token = event.stop_token;
  --choices_running_;
  choices_[index].output.hidden = event.hidden;
  if (event.capsule != nullptr) end.capsule = host_.capsules.Store(event.capsule, host_.unix_now_s());
  if (info_.stream) format_->FinishChoice(static_cast<uint32_t>(index), end, output_);
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
  if (frame_ != nullptr) {
    const bool answered = reason == engine::FinishReason::kStop || reason == engine::FinishReason::kLength;
    if (answered && !error_.has_value()) frame_->Answered();
    frame_.reset();
  }
  Log();
  // Whatever came out: it has been read, and what the client sends next may go on from it.
  if (!session_.empty() && !error_.has_value()) {
    host_.sessions.Store(cache_namespace_, session_,
                         {std::move(history_), turn_ ? StatesOf(*turn_) : std::vector<MessageState>{}});
  }
  const auto whole = [](uint64_t count) { return static_cast<int64_t>(count); };
  telemetry::Log(spdlog::level::info, "answered",
                 {{"request", info_.id},
                  {"kind", info_.kind},
                  {"status", whole(static_cast<uint64_t>(error_.has_value() ? error_->http_status : 200))},
                  {"finish", FinishReasonName(reason)},
                  {"prompt_tokens", whole(record_.usage.prompt_tokens)},
                  {"cached_tokens", whole(record_.usage.cached_tokens)},
                  {"output_tokens", whole(record_.usage.output_tokens)},
                  {"total_ms", Seconds(record_.finished_at - record_.received_at) * 1e3}});
  if (info_.stream) EmitEnd();
  if (wake_) std::exchange(wake_, nullptr)();
}

void GenerationStream::Log() {
  LoggedRequest entry{.id = info_.id,
                      .kind = std::string(info_.kind),
                      .tenant = tenant_,
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
    if (begun_) format_->Fail(*error_, output_);
    return;
  }
  if (record_.reason == engine::FinishReason::kCancelled) return;
  format_->End(Totals(), output_);
}

AnswerTotals GenerationStream::Totals() const {
  return {.usage = record_.usage, .timings = Timings(), .turn = turn_ ? &*turn_ : nullptr};
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
  std::vector<ChoiceOutput> outputs;
  outputs.reserve(choices_.size());
  for (Choice& choice : choices_) outputs.push_back(std::move(choice.output));
  return format_->Whole(outputs, Totals());
}

}  // namespace kvist::serve
