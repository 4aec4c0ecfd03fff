#include "engine/engine.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"

namespace kvist::engine {

Engine::Engine(step::Executor& executor, kv::KvMemory& memory, sched::SchedulerPolicy& policy,
               const Tokenizer& tokenizer, const Clock& clock, const EngineOptions& options)
    : executor_(executor),
      memory_(memory),
      policy_(policy),
      tokenizer_(tokenizer),
      clock_(clock),
      options_(options),
      context_tokens_max_(std::min<uint64_t>(executor.Limits().context_tokens_max,
                                             uint64_t{memory.frames_count()} * executor.Limits().block_tokens)) {
  executor_.SetWake([this] {
    {
      std::lock_guard lock(mutex_);
      woken_ = true;
    }
    wake_.notify_one();
  });
  PublishStats();
}

Engine::~Engine() {
  Stop(/*drain=*/false);
  while (in_flight_) RunOnce();  // A step of an engine that was never started on a thread.
}

RequestId Engine::Submit(GenerationRequest request, EventSink sink) {
  const RequestId id{next_request_.fetch_add(1)};
  auto entry = std::make_unique<Request>(id, std::move(request), std::move(sink), tokenizer_, clock_.Now());
  {
    std::lock_guard lock(mutex_);
    if (!stopping_) {
      inbox_.push_back({id, std::move(entry)});
      woken_ = true;
      wake_.notify_one();
      return id;
    }
  }
  GenerationEvent event{
      .id = id, .finish = FinishReason::kError, .status = absl::UnavailableError("the server is shutting down")};
  entry->sink(std::move(event));
  return id;
}

void Engine::Cancel(RequestId id) {
  {
    std::lock_guard lock(mutex_);
    inbox_.push_back({id, nullptr});
    woken_ = true;
  }
  wake_.notify_one();
}

bool Engine::RunOnce() {
  bool worked = DrainInbox();
  worked |= TakeResult();
  if (!in_flight_) worked |= StartStep();
  if (worked) PublishStats();
  return worked;
}

bool Engine::DrainInbox() {
  std::vector<Post> posts;
  {
    std::lock_guard lock(mutex_);
    posts.swap(inbox_);
  }
  for (Post& post : posts) {
    if (post.request != nullptr) {
      Admit(std::move(post.request));
    } else {
      ApplyCancel(post.id);
    }
  }
  return !posts.empty();
}

absl::Status Engine::Check(const Request& request) const {
  const size_t prompt = request.input.prompt.size();
  if (prompt == 0) return absl::InvalidArgumentError("the prompt is empty");
  if (prompt >= context_tokens_max_) {
    return absl::InvalidArgumentError(
        Cat("the prompt has ", prompt, " tokens, but prompt and output together can have ", context_tokens_max_));
  }
  const uint32_t vocab = executor_.Limits().vocab_size;
  for (TokenId token : request.input.prompt) {
    if (token.value >= vocab) {
      return absl::InvalidArgumentError(Cat("prompt token ", token.value, " is not in the vocabulary of ", vocab));
    }
  }
  return absl::OkStatus();
}

void Engine::Admit(std::unique_ptr<Request> request) {
  absl::Status status = Check(*request);
  if (status.ok() && waiting_.size() >= options_.waiting_max) {
    status = absl::ResourceExhaustedError(Cat("too many requests are waiting (", options_.waiting_max, ")"));
  }
  request->usage.prompt_tokens = static_cast<uint32_t>(request->input.prompt.size());
  const uint32_t room = context_tokens_max_ - std::min(context_tokens_max_, request->usage.prompt_tokens);
  request->output_max = std::min(request->input.max_tokens, room);
  if (status.ok() && request->NeedsCounts()) {
    for (TokenId token : request->tokens) request->Count(token, /*is_output=*/false);
  }
  const bool nothing_to_do = status.ok() && request->output_max == 0;
  const RequestId id = request->id;
  waiting_.push_back(std::move(request));
  if (!status.ok()) Finish(id, FinishReason::kError, status);
  if (nothing_to_do) Finish(id, FinishReason::kLength);
}

Request* Engine::FindRequest(RequestId id) {
  for (auto* list : {&running_, &waiting_}) {
    auto it = std::ranges::find(*list, id, [](const auto& r) { return r->id; });
    if (it != list->end()) return it->get();
  }
  return nullptr;
}

void Engine::ApplyCancel(RequestId id) {
  Request* request = FindRequest(id);
  if (request == nullptr || request->cancelled) return;
  if (!request->in_step) return Finish(id, FinishReason::kCancelled);
  // The executor still writes into its blocks: they are freed when the step ends, the client is told now.
  request->cancelled = true;
  GenerationEvent event{.id = id, .finish = FinishReason::kCancelled, .usage = request->usage};
  std::exchange(request->sink, nullptr)(std::move(event));
}

void Engine::Finish(RequestId id, FinishReason reason, absl::Status status) {
  for (auto* list : {&running_, &waiting_}) {
    auto it = std::ranges::find(*list, id, [](const auto& r) { return r->id; });
    if (it == list->end()) continue;
    std::unique_ptr<Request> request = std::move(*it);
    list->erase(it);
    if (request->has_memory) memory_.End(id);
    switch (reason) {
      case FinishReason::kStop:
        ++work_.finished_stop;
        break;
      case FinishReason::kLength:
        ++work_.finished_length;
        break;
      case FinishReason::kCancelled:
        ++work_.finished_cancelled;
        break;
      case FinishReason::kError:
        ++work_.finished_error;
        break;
      case FinishReason::kNone:
        break;
    }
    if (request->sink) {
      GenerationEvent event{.id = id, .finish = reason, .status = std::move(status), .usage = request->usage};
      request->text.Finish();
      request->text.TakeReady(event);
      request->sink(std::move(event));
    }
    return;
  }
}

void Engine::FailAll(const absl::Status& status) {
  while (!running_.empty()) Finish(running_.back()->id, FinishReason::kError, status);
  while (!waiting_.empty()) Finish(waiting_.back()->id, FinishReason::kError, status);
}

bool Engine::TakeResult() {
  if (!in_flight_) return false;
  absl::StatusOr<std::optional<step::StepResult>> polled = executor_.Poll();
  if (!polled.ok()) {
    in_flight_ = false;
    FailAll(polled.status());
    return true;
  }
  if (!polled->has_value()) return false;
  step::StepResult& result = **polled;
  in_flight_ = false;
  ++work_.steps;
  work_.step_ns += static_cast<uint64_t>(result.finished_at - result.started_at);
  work_.last_step_at = result.finished_at;
  uint32_t sampled = 0, logprobs = 0;
  for (uint32_t i = 0; i < result.plan.slices.size(); ++i) {
    const std::optional<step::Sampling>& sampling = result.plan.slices[i].sampling;
    ApplySlice(result, i, sampled, logprobs);
    if (!sampling) continue;
    ++sampled;
    if (sampling->want_logprobs) logprobs += 1 + sampling->logprobs_count;
  }
  plan_ = std::move(result.plan);
  executor_.Recycle(std::move(result));
  return true;
}

void Engine::ApplySlice(const step::StepResult& result, uint32_t slice_index, uint32_t sampled_index,
                        uint32_t logprobs_index) {
  const step::Slice& slice = result.plan.slices[slice_index];
  Request* request = FindRequest(slice.request);
  KVIST_CHECK(request != nullptr && request->in_step);
  request->in_step = false;
  memory_.Commit(request->id, std::span(request->tokens).subspan(request->computed, slice.commit_count));
  request->computed += slice.commit_count;
  work_.computed_tokens += slice.commit_count;
  if (request->cancelled) return Finish(request->id, FinishReason::kCancelled);
  if (!slice.sampling) return;

  const TokenId token = result.sampled[sampled_index];
  request->tokens.push_back(token);
  ++request->usage.output_tokens;
  ++work_.generated_tokens;
  if (request->NeedsCounts()) request->Count(token, /*is_output=*/true);
  const bool ends = (tokenizer_.IsEndOfGeneration(token) && !request->input.ignore_eos) ||
                    std::ranges::find(request->input.stop_tokens, token) != request->input.stop_tokens.end();
  if (ends) return Finish(request->id, FinishReason::kStop);

  TokenEvent token_event{.token = token, .logprob = 0, .top = {}};
  if (slice.sampling->want_logprobs) {
    const step::TokenLogprob* entry = result.logprobs.data() + logprobs_index;
    token_event.logprob = entry->logprob;
    token_event.top.assign(entry + 1, entry + 1 + slice.sampling->logprobs_count);
  }
  if (request->text.Push(std::move(token_event))) return Finish(request->id, FinishReason::kStop);
  if (request->output_count() >= request->output_max) return Finish(request->id, FinishReason::kLength);
  GenerationEvent event{.id = request->id, .usage = request->usage};
  request->text.TakeReady(event);
  if (!event.token_ids.empty() || !event.text.empty()) request->sink(std::move(event));
}

void Engine::Preempt(Request& request) {
  memory_.End(request.id);
  request.has_memory = false;
  request.computed = 0;
  ++work_.preemptions;
  auto it = std::ranges::find(running_, request.id, [](const auto& r) { return r->id; });
  std::unique_ptr<Request> moved = std::move(*it);
  running_.erase(it);
  auto later = std::ranges::find_if(waiting_, [&](const auto& r) { return r->id > moved->id; });
  waiting_.insert(later, std::move(moved));
}

bool Engine::StartStep() {
  if (running_.empty() && waiting_.empty()) return false;
  auto view = [this](const Request& r) {
    return sched::RequestView{.id = r.id,
                              .tenant = r.input.tenant,
                              .arrived_at = r.arrived_at,
                              .first_token_due = r.input.first_token_due,
                              .tokens_known = r.known(),
                              .tokens_computed = r.computed,
                              .blocks_held = r.has_memory ? memory_.BlocksHeld(r.id) : 0,
                              .priority = r.input.priority};
  };
  running_views_.clear();
  waiting_views_.clear();
  for (const auto& r : running_) running_views_.push_back(view(*r));
  for (const auto& r : waiting_) waiting_views_.push_back(view(*r));
  const step::ExecutorLimits& limits = executor_.Limits();
  const sched::StepBudget budget{.tokens_max = limits.tokens_per_step_max,
                                 .requests_max = limits.slices_per_step_max,
                                 .blocks_free = memory_.AvailableFrames(),
                                 .block_tokens = limits.block_tokens};
  policy_.Decide(running_views_, waiting_views_, budget, clock_.Now(), decision_);
  KVIST_CHECK(sched::FindFault(running_views_, waiting_views_, budget, decision_).empty());

  for (RequestId id : decision_.preempt) Preempt(*FindRequest(id));
  plan_.Clear();
  for (const sched::Advance& advance : decision_.advance) {
    Request* request = FindRequest(advance.request);
    if (!request->has_memory) {
      request->computed = memory_.Begin(request->id, request->input.cache_namespace, request->tokens);
      request->has_memory = true;
      if (!request->counted) {
        request->counted = true;
        request->usage.cached_tokens = request->computed;
        work_.prompt_tokens += request->usage.prompt_tokens;
        work_.cached_tokens += request->usage.cached_tokens;
      }
      auto it = std::ranges::find(waiting_, request->id, [](const auto& r) { return r->id; });
      running_.push_back(std::move(*it));
      waiting_.erase(it);
    }
    AddSlice(*request, std::min(advance.tokens, request->known() - request->computed));
  }
  if (plan_.slices.empty()) return !decision_.preempt.empty();
  plan_.id = StepId{next_step_++};
  work_.last_step_at = clock_.Now();
  absl::Status status = executor_.Submit(std::move(plan_));
  if (!status.ok()) {
    for (auto& request : running_) request->in_step = false;
    FailAll(status);
    return true;
  }
  in_flight_ = true;
  return true;
}

void Engine::AddSlice(Request& request, uint32_t tokens) {
  KVIST_CHECK(memory_.Reserve(request.id, request.computed + tokens));
  const SpanId span = memory_.SpanOf(request.id);
  step::Slice slice{.request = request.id,
                    .position = request.computed,
                    .tokens_begin = static_cast<uint32_t>(plan_.tokens.size()),
                    .tokens_count = tokens,
                    .segments_begin = static_cast<uint32_t>(plan_.segments.size()),
                    .segments_count = 1,
                    .tail = span,
                    .tail_begin = request.computed,
                    .commit_count = tokens};
  for (uint32_t i = 0; i < tokens; ++i) plan_.tokens.push_back({.known = request.tokens[request.computed + i]});
  plan_.segments.push_back({.span = span, .token_begin = 0, .tokens_count = request.computed + tokens});
  if (request.computed + tokens == request.known()) {
    slice.sampling = request.input.sampling;
    slice.counts_begin = static_cast<uint32_t>(plan_.counts.size());
    slice.counts_count = static_cast<uint32_t>(request.counts.size());
    plan_.counts.insert(plan_.counts.end(), request.counts.begin(), request.counts.end());
    slice.biases_begin = static_cast<uint32_t>(plan_.biases.size());
    slice.biases_count = static_cast<uint32_t>(request.input.biases.size());
    plan_.biases.insert(plan_.biases.end(), request.input.biases.begin(), request.input.biases.end());
  }
  plan_.slices.push_back(slice);
  request.in_step = true;
}

void Engine::PublishStats() {
  work_.running = running_.size();
  work_.waiting = waiting_.size();
  work_.kv_frames = memory_.frames_count();
  work_.kv_frames_free = memory_.counts().free;
  work_.kv_frames_cached = memory_.counts().cached;
  std::lock_guard lock(mutex_);
  stats_ = work_;
}

EngineStats Engine::Stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void Engine::Start() {
  KVIST_CHECK(!thread_.joinable());
  thread_ = std::thread([this] { Loop(); });
}

bool Engine::CancelAll() {
  std::vector<RequestId> ids;
  for (auto* list : {&running_, &waiting_}) {
    for (const auto& request : *list) {
      if (!request->cancelled) ids.push_back(request->id);
    }
  }
  for (RequestId id : ids) ApplyCancel(id);
  return !ids.empty();
}

void Engine::Loop() {
  while (true) {
    if (RunOnce()) continue;
    std::unique_lock lock(mutex_);
    if (stopping_ && inbox_.empty()) {
      if (!draining_) {
        lock.unlock();
        if (CancelAll()) continue;
        lock.lock();
      }
      if (running_.empty() && waiting_.empty()) break;
    }
    wake_.wait(lock, [this] { return woken_; });
    woken_ = false;
  }
  PublishStats();
}

void Engine::Stop(bool drain) {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    draining_ = drain;
    woken_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

}  // namespace kvist::engine
