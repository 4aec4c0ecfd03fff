#include "engine/engine.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/status.h"
#include "engine/engine_tier.h"

namespace kvist::engine {
namespace {

/// Requests of one group share at least so large a part of the later one's prompt.
constexpr uint32_t kGroupShare = 4;

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
  CloseTiers();
  executor_.SetWake(nullptr);
}

RequestId Engine::Submit(GenerationRequest request, EventSink sink) {
  const RequestId id{next_request_.fetch_add(1)};
  auto entry = std::make_unique<Request>(id, std::move(request), std::move(sink), tokenizer_, clock_.Now());
  {
    std::lock_guard lock(mutex_);
    if (!stopping_) {
      ++inbox_requests_;
      inbox_tokens_ += entry->input.prompt.size();
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

void Engine::SetTargets(int64_t first_token_ns, int64_t next_token_ns) {
  Call([this, first_token_ns, next_token_ns] {
    options_.first_token_ns = first_token_ns;
    options_.next_token_ns = next_token_ns;
  });
}

void Engine::Cancel(RequestId id) {
  Call([this, id] { ApplyCancel(id); });
}

void Engine::Inspect(SnapshotDetail detail, std::function<void(const MemorySnapshot&)> receive) {
  Call([this, detail, receive = std::move(receive)] { receive(TakeMemorySnapshot(detail)); });
}

void Engine::Snapshot(RequestId id, std::function<void(std::optional<Capsule>)> receive) {
  Call([this, id, receive = std::move(receive)] {
    const Request* request = FindRequest(id);
    receive(request == nullptr || request->cancelled ? std::nullopt : std::optional(request->Snapshot()));
  });
}

MemorySnapshot Engine::TakeMemorySnapshot(SnapshotDetail detail) const {
  MemorySnapshot snapshot{.figures = memory_.Figures(), .now = clock_.Now(), .nodes = {}, .requests = {}};
  if (tiers_) snapshot.tiers = tiers_->Figures();
  if (detail == SnapshotDetail::kWithNodes) snapshot.nodes = memory_.Describe();
  for (const auto* list : {&running_, &waiting_}) {
    for (const auto& request : *list) {
      RequestMemory entry{.id = request->id,
                          .tenant = request->input.tenant,
                          .tokens_known = request->known(),
                          .tokens_computed = request->computed,
                          .tokens_prompt = request->usage.prompt_tokens,
                          .tokens_output = request->usage.output_tokens,
                          .tokens_cached = request->usage.cached_tokens,
                          .running = list == &running_,
                          .preempted = request->trace.preempted_since != kTimeNever,
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
  AdvanceMeters();
  bool worked = ExpireMemory();
  worked |= DrainInbox();
  worked |= TakeResult();
  worked |= TurnTiers();
  if (!in_flight_) worked |= StartStep();
  if (worked) PublishStats();
  return worked;
}

bool Engine::DrainInbox() {
  std::vector<Post> posts;
  {
    std::lock_guard lock(mutex_);
    posts.swap(inbox_);
    queue_.waiting += std::exchange(inbox_requests_, 0);  // Until the next PublishStats.
    queue_.prompt_tokens += std::exchange(inbox_tokens_, 0);
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
  if (const uint32_t bound = request.input.tenant_blocks_max; bound > 0 && need.blocks >= bound) {
    return absl::InvalidArgumentError(Cat("the prompt needs ", need.blocks,
                                          " blocks of KV memory and its answer more, ", "but the tenant may hold ",
                                          bound));
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
  if (book_ != nullptr) {
    Meter* meter = book_->Open(request->id, request->input);
    if (meter == nullptr && status.ok()) {
      status = absl::ResourceExhaustedError("what requests use cannot be written down as fast as they come");
    }
    if (meter != nullptr) request->meter = meter;
  }
  request->usage.prompt_tokens = static_cast<uint32_t>(request->input.prompt.size());
  if (status.ok()) {
    const uint32_t prompt = request->usage.prompt_tokens;
    request->trace.prompt_tokens = prompt;
    const uint32_t live = kv::LiveText::After(prompt, request->input.ops).live_tokens();
    request->usage.dropped_tokens = prompt - live;
    request->output_max = std::min(request->input.max_tokens, context_tokens_max_ - live);
    status = CheckQuota(*request, live);
    SetBlocksSpared(*request);
    Look(*request);
    FindLeader(*request);
  }
  if (status.ok() && request->NeedsCounts()) request->CountPrompt();
  Growth growth;
  if (!status.ok()) {
    growth = {.finish = FinishReason::kError, .status = std::move(status)};
  } else if (request->output_max == 0) {
    if (!request->input.want_prompt_logprobs) growth.finish = FinishReason::kLength;
  } else if (request->input.constraint != nullptr) {
    growth = BeginConstraint(*request);
  }
  const RequestId id = request->id;
  by_id_.emplace(id, request.get());
  tenant_share_.Enter(request->input.tenant);
  waiting_.push_back(std::move(request));
  if (growth.finish != FinishReason::kNone) Finish(id, growth.finish, std::move(growth.status));
}

/// Two requests that would compute the same beginning at once: the later one waits until the earlier one has it.
void Engine::FindLeader(Request& request) {
  request.prefix_group = request.id.value;
  if (request.input.want_prompt_logprobs) return;  // It needs results of tokens, not what is kept of them.
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
      // What templates begin with all the same makes no group.
      if (same >= request.known() / kGroupShare) request.prefix_group = other->prefix_group;
    }
  }
}

bool Engine::WaitsForLeader(const Request& request) {
  if (request.leader_tokens == 0 || request.counted) return false;  // Preempted before: it takes its turn.
  const Request* leader = FindRequest(request.leader);
  return leader != nullptr && !leader->cancelled && leader->computed < request.leader_tokens;
}

Request* Engine::FindRequest(RequestId id) {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
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
  by_id_.erase(id);
  tenant_share_.Leave(request->input.tenant);
  if (reason == FinishReason::kStop || reason == FinishReason::kLength) CountOutput(*request);
  std::shared_ptr<const RequestTrace> trace = request->sink ? TraceAtEnd(*request) : nullptr;
  if (request->has_memory) {
    EndMemory(*request, /*may_pin=*/true);
  } else if (tiers_) {
    tiers_->EndHold(id);
  }
  request->meter->total_ns = clock_.Now() - request->arrived_at;
  if (book_ != nullptr && request->meter != &request->own_meter) book_->Close(request->meter, reason);
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
  if (reason == FinishReason::kStop) {
    event.stop = request->text.found_stop();
    const bool by_token = event.stop.empty() && std::ranges::find(request->input.stop_tokens, request->tokens.back()) !=
                                                    request->input.stop_tokens.end();
    if (by_token) event.stop_token = request->tokens.back();
  }
  if (request->input.want_capsule && (reason == FinishReason::kStop || reason == FinishReason::kLength)) {
    event.capsule = std::make_shared<const Capsule>(request->Snapshot());
  }
  event.range_mass = std::move(request->range_mass);
  event.prompt_logprobs = std::move(request->prompt_logprobs);
  event.hidden = std::move(request->hidden);
  request->sink(std::move(event));
}

void Engine::FailAll(const absl::Status& status) {
  while (!running_.empty()) Finish(running_.back()->id, FinishReason::kError, status);
  while (!waiting_.empty()) Finish(waiting_.back()->id, FinishReason::kError, status);
}

void Engine::PublishStats() {
  work_.running = running_.size();
  work_.waiting = waiting_.size();
  work_.kv = memory_.Figures();
  work_.step_cost = step_time_.cost();
  const sched::QueueFacts queue = QueueFactsNow();
  std::lock_guard lock(mutex_);
  stats_ = work_;
  queue_ = queue;
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
  CloseTiers();
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
