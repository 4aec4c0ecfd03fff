#include "engine/engine.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/status.h"

namespace kvist::engine {
namespace {

using Requests = std::vector<std::unique_ptr<Request>>;

/// Takes a request out of a list; nullptr when it is not there.
std::unique_ptr<Request> TakeFrom(Requests& list, RequestId id) {
  const auto it = std::ranges::find(list, id, [](const auto& r) { return r->id; });
  if (it == list.end()) return nullptr;
  std::unique_ptr<Request> request = std::move(*it);
  list.erase(it);
  return request;
}

}  // namespace

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
  executor_.SetWake(nullptr);
}

RequestId Engine::Submit(GenerationRequest request, EventSink sink) {
  const RequestId id{next_request_.fetch_add(1)};
  auto entry = std::make_unique<Request>(id, std::move(request), std::move(sink), tokenizer_, clock_.Now());
  {
    std::lock_guard lock(mutex_);
    if (!stopping_) {
      inbox_.push_back({std::move(entry), nullptr});
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

void Engine::Call(std::function<void()> call) {
  {
    std::lock_guard lock(mutex_);
    inbox_.push_back({nullptr, std::move(call)});
    woken_ = true;
  }
  wake_.notify_one();
}

void Engine::Cancel(RequestId id) {
  Call([this, id] { ApplyCancel(id); });
}

void Engine::Inspect(std::function<void(const MemorySnapshot&)> receive) {
  Call([this, receive = std::move(receive)] { receive(TakeMemorySnapshot()); });
}

void Engine::Snapshot(RequestId id, std::function<void(std::optional<Capsule>)> receive) {
  Call([this, id, receive = std::move(receive)] {
    const Request* request = FindRequest(id);
    receive(request == nullptr || request->cancelled ? std::nullopt : std::optional(request->Snapshot()));
  });
}

MemorySnapshot Engine::TakeMemorySnapshot() const {
  MemorySnapshot snapshot{
      .figures = memory_.Figures(), .now = clock_.Now(), .nodes = memory_.Describe(), .requests = {}};
  for (const auto* list : {&running_, &waiting_}) {
    for (const auto& request : *list) {
      RequestMemory entry{.id = request->id,
                          .tenant = request->input.tenant,
                          .tokens_known = request->known(),
                          .tokens_computed = request->computed,
                          .tokens_cached = request->usage.cached_tokens,
                          .running = list == &running_,
                          .age_s = Seconds(clock_.Now() - request->arrived_at)};
      if (request->has_memory) {
        std::vector<kv::Segment> view;
        memory_.AppendView(request->id, 0, view);
        entry.tokens_live = memory_.LiveTokens(request->id);
        entry.blocks_own = memory_.BlocksOwn(request->id);
        entry.segments = static_cast<uint32_t>(view.size());
      }
      snapshot.requests.push_back(entry);
    }
  }
  return snapshot;
}

bool Engine::RunOnce() {
  bool worked = ExpireMemory();
  worked |= DrainInbox();
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
      post.call();
    }
  }
  return !posts.empty();
}

absl::Status Engine::Check(const Request& request) const {
  const uint32_t prompt = static_cast<uint32_t>(request.input.prompt.size());
  if (prompt == 0) return absl::InvalidArgumentError("the prompt is empty");
  if (request.input.prompt_output_tokens >= prompt && request.input.prompt_output_tokens > 0) {
    return absl::InvalidArgumentError(
        Cat(request.input.prompt_output_tokens, " tokens of a prompt of ", prompt, " cannot be output"));
  }
  if (std::string fault = kv::FindFault(request.input.ops); !fault.empty()) return absl::InvalidArgumentError(fault);
  if (!request.input.ops.empty() && request.input.ops.back().at > prompt) {
    return absl::InvalidArgumentError(
        Cat("an operation comes after ", request.input.ops.back().at, " tokens of a prompt of ", prompt));
  }
  if (std::string fault = kv::FindFault(request.input.retain, prompt); !fault.empty()) {
    return absl::InvalidArgumentError(Cat("what is to be retained: ", fault));
  }
  const kv::LiveText::Need need = kv::LiveText::Peak(prompt, request.input.ops);
  if (need.tokens >= context_tokens_max_ || need.blocks > memory_.frames_count()) {
    const std::string dropped = need.tokens == prompt ? ""
                                                      : Cat(" (", need.tokens, " at once, in ", need.blocks, " of ",
                                                            memory_.frames_count(), " blocks)");
    return absl::InvalidArgumentError(Cat("the prompt has ", prompt, " tokens", dropped,
                                          ", but prompt and output together can have ", context_tokens_max_));
  }
  uint32_t measured = 0;
  for (const kv::TokenRange& range : request.input.mass_ranges) {
    if (range.begin < measured || range.end < range.begin || range.end > prompt) {
      return absl::InvalidArgumentError(
          Cat("attention of [", range.begin, ", ", range.end, "): not in order, or not in a prompt of ", prompt));
    }
    measured = range.end;
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
  if (status.ok()) {
    const uint32_t prompt = request->usage.prompt_tokens;
    request->trace.prompt_tokens = prompt;
    const uint32_t live = kv::LiveText::After(prompt, request->input.ops).live_tokens();
    request->usage.dropped_tokens = prompt - live;
    request->output_max = std::min(request->input.max_tokens, context_tokens_max_ - live);
    SetBlocksSpared(*request);
    FindLeader(*request);
  }
  if (status.ok() && request->NeedsCounts()) request->CountPrompt();
  const bool nothing_to_do = status.ok() && request->output_max == 0;
  const RequestId id = request->id;
  waiting_.push_back(std::move(request));
  if (!status.ok()) Finish(id, FinishReason::kError, status);
  if (nothing_to_do) Finish(id, FinishReason::kLength);
}

void Engine::SetBlocksSpared(Request& request) const {
  request.blocks_spared =
      kv::BlocksFor(request.known()) - kv::LiveText::Peak(request.known(), request.input.ops).blocks;
}

/// Two requests that would compute the same beginning at once: the later one waits until the earlier one has it.
void Engine::FindLeader(Request& request) {
  const auto& tokens = request.tokens;
  for (const auto* list : {&running_, &waiting_}) {
    for (const auto& other : *list) {
      if (other->input.cache_namespace != request.input.cache_namespace) continue;
      if (other->input.priority > request.input.priority) continue;  // Might itself wait for long.
      auto same = static_cast<uint32_t>(std::ranges::mismatch(tokens, other->tokens).in1 - tokens.begin());
      const auto [mine, theirs] = std::ranges::mismatch(request.input.ops, other->input.ops);
      if (mine != request.input.ops.end()) same = std::min(same, mine->at);
      if (theirs != other->input.ops.end()) same = std::min(same, theirs->at);
      // A block under way can be copied from, which pays when nothing but the last token is left to compute.
      const uint32_t whole = same / kv::kBlockTokens * kv::kBlockTokens;
      same = whole > 0 ? std::max(whole, same + 1 >= request.known() ? request.known() - 1 : 0) : 0;
      if (same <= request.leader_tokens) continue;
      request.leader = other->id;
      request.leader_tokens = same;
    }
  }
}

bool Engine::WaitsForLeader(const Request& request) {
  if (request.leader_tokens == 0 || request.counted) return false;  // Preempted before: it takes its turn.
  const Request* leader = FindRequest(request.leader);
  return leader != nullptr && !leader->cancelled && leader->computed < request.leader_tokens;
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
  GenerationEvent event{
      .id = id, .finish = FinishReason::kCancelled, .usage = request->usage, .trace = TraceAtEnd(*request)};
  event.range_mass = std::move(request->range_mass);
  std::exchange(request->sink, nullptr)(std::move(event));
}

void Engine::Finish(RequestId id, FinishReason reason, absl::Status status) {
  std::unique_ptr<Request> request = TakeFrom(running_, id);
  if (request == nullptr) request = TakeFrom(waiting_, id);
  if (request == nullptr) return;
  std::shared_ptr<const RequestTrace> trace = request->sink ? TraceAtEnd(*request) : nullptr;
  if (request->has_memory) EndMemory(*request, /*may_pin=*/true);
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
  if (!request->sink) return;
  GenerationEvent event{
      .id = id, .finish = reason, .status = std::move(status), .usage = request->usage, .trace = std::move(trace)};
  request->text.Finish();
  request->text.TakeReady(event);
  if (request->input.want_capsule && (reason == FinishReason::kStop || reason == FinishReason::kLength)) {
    event.capsule = std::make_shared<const Capsule>(request->Snapshot());
  }
  event.range_mass = std::move(request->range_mass);
  request->sink(std::move(event));
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
  request->trace.AddStep(result, slice.commit_count);
  if (request->cancelled) return Finish(request->id, FinishReason::kCancelled);
  if (!slice.sampling) return;

  if (slice.mass_count > 0) {
    const auto first = result.range_mass.begin() + slice.mass_begin;
    request->range_mass.assign(first, first + slice.mass_count);
  }
  const TokenId token = result.sampled[sampled_index];
  request->tokens.push_back(token);
  if (request->usage.output_tokens++ == 0) request->trace.first_token_at = clock_.Now();
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
  if (event.token_ids.empty() && event.text.empty()) return;
  event.range_mass = std::move(request->range_mass);
  request->sink(std::move(event));
}

void Engine::Preempt(Request& request) {
  EndMemory(request, /*may_pin=*/false);
  request.lost_tokens = std::exchange(request.computed, 0);
  ++request.trace.preemptions;
  request.trace.preempted_since = clock_.Now();
  SetBlocksSpared(request);  // The text has grown.
  ++work_.preemptions;
  std::unique_ptr<Request> moved = TakeFrom(running_, request.id);
  auto later = std::ranges::find_if(waiting_, [&](const auto& r) { return r->id > moved->id; });
  waiting_.insert(later, std::move(moved));
}

sched::RequestView Engine::ViewOf(const Request& request) const {
  uint32_t known = request.known();
  if (request.has_memory) {  // What comes after an operation may only fit once that has made room.
    known = request.computed + std::min(known - request.computed, memory_.TokensUntilOp(request.id));
  }
  return {.id = request.id,
          .tenant = request.input.tenant,
          .arrived_at = request.arrived_at,
          .first_token_due = request.input.first_token_due,
          .tokens_known = known,
          .tokens_computed = request.computed,
          .blocks_held = request.has_memory ? memory_.BlocksHeld(request.id) : request.blocks_spared,
          .blocks_own = request.has_memory ? memory_.BlocksOwn(request.id) : 0,
          .priority = request.input.priority};
}

bool Engine::StartStep() {
  if (running_.empty() && waiting_.empty()) return false;
  const TimeNs now = clock_.Now();
  running_views_.clear();
  waiting_views_.clear();
  for (const auto& request : running_) running_views_.push_back(ViewOf(*request));
  for (const auto& request : waiting_) {
    const bool waits = WaitsForLeader(*request);
    waits ? request->trace.BeginLeaderWait(request->leader, request->leader_tokens, now)
          : request->trace.EndLeaderWait(now);
    if (!waits) {
      waiting_views_.push_back(ViewOf(*request));
    } else if (!std::exchange(request->held_back, true)) {
      ++work_.waited_for_prefix;
    }
  }
  const step::ExecutorLimits& limits = executor_.Limits();
  const sched::StepBudget budget{.tokens_max = limits.tokens_per_step_max,
                                 .requests_max = limits.slices_per_step_max,
                                 .blocks_free = memory_.AvailableFrames(),
                                 .block_tokens = limits.block_tokens};
  policy_.Decide(running_views_, waiting_views_, budget, now, decision_);
  KVIST_CHECK(sched::FindFault(running_views_, waiting_views_, budget, decision_).empty());

  for (const RequestId id : decision_.preempt) Preempt(*FindRequest(id));
  plan_.Clear();
  for (const sched::Advance& advance : decision_.advance) {
    Request* request = FindRequest(advance.request);
    if (!request->has_memory) Begin(*request);
    AddSlice(*request, std::min(advance.tokens, request->known() - request->computed));
  }
  if (plan_.slices.empty()) {
    if (!decision_.preempt.empty()) return true;
    return GiveWay();
  }
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

/// Gives a waiting request its place in memory, on what is cached of its text.
void Engine::Begin(Request& request) {
  request.computed =
      memory_.Begin(request.id, request.input.cache_namespace, request.tokens, request.input.ops, request.leader);
  request.has_memory = true;
  TraceBegin(request);
  if (!request.counted) {
    request.counted = true;
    request.usage.cached_tokens = request.computed;
    work_.prompt_tokens += request.usage.prompt_tokens;
    work_.cached_tokens += request.usage.cached_tokens;
  }
  running_.push_back(TakeFrom(waiting_, request.id));
}

/// When there are no frames for it, the request has no part in this step.
void Engine::AddSlice(Request& request, uint32_t tokens) {
  tokens = std::min(tokens, memory_.TokensUntilOp(request.id));
  if (!memory_.Reserve(request.id, request.computed + tokens)) {
    const uint32_t fits = memory_.BlocksHeld(request.id) * kv::kBlockTokens - request.computed;
    if (fits == 0) return;
    tokens = std::min(tokens, fits);
  }
  if (const std::optional<kv::BlockCopy> copy = memory_.TakeCopy(request.id)) plan_.block_copies.push_back(*copy);
  const auto segments_begin = static_cast<uint32_t>(plan_.segments.size());
  memory_.AppendView(request.id, tokens, plan_.segments);
  step::Slice slice{.request = request.id,
                    .position = memory_.NextPosition(request.id),
                    .tokens_begin = static_cast<uint32_t>(plan_.tokens.size()),
                    .tokens_count = tokens,
                    .segments_begin = segments_begin,
                    .segments_count = static_cast<uint32_t>(plan_.segments.size()) - segments_begin,
                    .tail = memory_.SpanOf(request.id),
                    .tail_begin = memory_.TailTokens(request.id),
                    .commit_count = tokens};
  for (uint32_t i = 0; i < tokens; ++i) plan_.tokens.push_back({.known = request.tokens[request.computed + i]});
  if (request.computed + tokens == request.known()) {
    slice.sampling = request.input.sampling;
    slice.counts_begin = static_cast<uint32_t>(plan_.counts.size());
    slice.counts_count = static_cast<uint32_t>(request.counts.size());
    plan_.counts.insert(plan_.counts.end(), request.counts.begin(), request.counts.end());
    slice.biases_begin = static_cast<uint32_t>(plan_.biases.size());
    slice.biases_count = static_cast<uint32_t>(request.input.biases.size());
    plan_.biases.insert(plan_.biases.end(), request.input.biases.begin(), request.input.biases.end());
    if (request.output_count() == 0) {  // Once, however often it is preempted later.
      slice.mass_begin = static_cast<uint32_t>(plan_.mass_ranges.size());
      slice.mass_count = static_cast<uint32_t>(request.input.mass_ranges.size());
      const kv::LiveText& live = memory_.Live(request.id);
      for (const kv::TokenRange& range : request.input.mass_ranges) {
        const kv::TokenRange in_view = live.InView(range);
        plan_.mass_ranges.push_back({in_view.begin, in_view.end});
      }
    }
  }
  plan_.slices.push_back(slice);
  request.in_step = true;
}

void Engine::PublishStats() {
  work_.running = running_.size();
  work_.waiting = waiting_.size();
  work_.kv = memory_.Figures();
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
    const TimeNs deadline = NextDeadline();
    const auto woken = [this] { return woken_; };
    if (deadline == kTimeNever) {
      wake_.wait(lock, woken);
    } else {  // What a condition can wait for is real time; who moves another clock wakes the engine.
      const std::chrono::nanoseconds left(std::max<int64_t>(deadline - clock_.Now(), 0));
      wake_.wait_for(lock, std::min<std::chrono::nanoseconds>(left, std::chrono::hours(1)), woken);
    }
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
