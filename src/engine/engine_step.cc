#include <algorithm>

#include "base/check.h"
#include "engine/engine.h"
#include "engine/engine_tier.h"

namespace kvist::engine {

void Engine::SetBlocksSpared(Request& request) const {
  request.blocks_spared =
      kv::BlocksFor(request.known()) - kv::LiveText::Peak(request.known(), request.input.ops).blocks;
}

namespace {

/// A slice's part of its step. The parts of all slices add up to the step's time: they lie between neighbouring points.
void MeterStep(const step::StepResult& result, const step::Slice& slice, Meter& meter) {
  const int64_t time_ns = result.finished_at - result.started_at;
  const auto tokens = static_cast<int64_t>(result.plan.tokens.size());
  const auto point = [&](int64_t token) { return time_ns * token / tokens; };
  const int64_t begin = slice.tokens_begin;
  meter.step_share_ns += point(begin + slice.tokens_count) - point(begin);
  meter.computed_tokens += slice.commit_count;
}

}  // namespace

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
  Learn(result);
  ResultPlace place;
  for (const step::Slice& slice : result.plan.slices) {
    ApplySlice(result, slice, place);
    place.hidden += slice.want_hidden ? 1 : 0;
    place.score_tops += slice.scores_count * slice.scores_top;
    if (!slice.sampling) continue;
    ++place.sampled;
    if (slice.sampling->want_logprobs) place.logprobs += 1 + slice.sampling->logprobs_count;
  }
  record_.id = result.id;
  record_.started_at = result.started_at;
  record_.finished_at = result.finished_at;
  step_log_.Add(record_);
  plan_ = std::move(result.plan);
  executor_.Recycle(std::move(result));
  return true;
}

void Engine::ApplySlice(const step::StepResult& result, const step::Slice& slice, const ResultPlace& place) {
  Request* request = FindRequest(slice.request);
  KVIST_CHECK(request != nullptr && request->in_step);
  request->in_step = false;
  memory_.Commit(request->id, std::span(request->tokens).subspan(request->computed, slice.commit_count));
  request->computed += slice.commit_count;
  work_.computed_tokens += slice.commit_count;
  tenant_share_.Charge(request->input.tenant, slice.commit_count + (slice.sampling ? 1 : 0));
  TraceStep(*request, result, slice);
  MeterStep(result, slice, *request->meter);
  if (request->cancelled) return Finish(request->id, FinishReason::kCancelled);
  if (slice.want_hidden) {
    const size_t features = executor_.Limits().hidden_size;
    const auto first = result.hidden.begin() + static_cast<std::ptrdiff_t>(place.hidden * features);
    request->hidden.assign(first, first + static_cast<std::ptrdiff_t>(features));
    return Finish(request->id, FinishReason::kStop);
  }
  TakeScores(*request, result, slice, place.score_tops);
  if (!slice.sampling) {
    if (request->output_max == 0 && request->computed == request->known()) {
      return Finish(request->id, FinishReason::kLength);
    }
    return TellProgress(*request);
  }

  if (slice.mass_count > 0) {
    const auto first = result.range_mass.begin() + slice.mass_begin;
    request->range_mass.assign(first, first + slice.mass_count);
  }
  request->last_token_at = clock_.Now();
  if (request->trace.first_token_at == kTimeNever) {
    request->trace.first_token_at = request->last_token_at;
    request->meter->first_token_ns = request->last_token_at - request->arrived_at;
  }
  TokenEvent token_event{.token = result.sampled[place.sampled], .logprob = 0, .top = {}};
  if (slice.sampling->want_logprobs) {
    const step::TokenLogprob* entry = result.logprobs.data() + place.logprobs;
    token_event.logprob = entry->logprob;
    token_event.top.assign(entry + 1, entry + 1 + slice.sampling->logprobs_count);
  }
  Growth growth = Grow(*request, std::move(token_event));
  if (growth.finish == FinishReason::kNone) growth = Settle(*request);
  if (growth.finish != FinishReason::kNone) return Finish(request->id, growth.finish, std::move(growth.status));
  GenerationEvent event{.id = request->id, .usage = request->usage};
  request->text.TakeReady(event);
  if (event.token_ids.empty() && event.text.empty()) return;
  event.range_mass = std::move(request->range_mass);
  event.prompt_logprobs = std::move(request->prompt_logprobs);
  request->sink(std::move(event));
}

void Engine::TellProgress(Request& request) {
  if (!request.input.want_progress || request.output_count() > 0) return;
  request.sink({.id = request.id, .usage = request.usage, .prompt_read = request.computed});
}

void Engine::Preempt(Request& request) {
  if (tiers_) tiers_->TextIsPreempted(request, step_time_.cost());
  EndMemory(request, /*may_pin=*/false);
  request.lost_tokens = std::exchange(request.computed, 0);
  request.fetch = {};  // What it loses meanwhile may be stored.
  ++request.trace.preemptions;
  ++request.meter->preemptions;
  request.stale = true;
  record_.preempted.push_back(request.id);
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
  sched::RequestView view{.id = request.id,
                          .tenant = request.input.tenant,
                          .arrived_at = request.arrived_at,
                          .tokens_known = known,
                          .tokens_computed = request.computed,
                          .tokens_cached = request.seen.tokens,
                          .context_tokens = request.seen.tokens,
                          .blocks_held = request.blocks_settled(),
                          .output_tokens_predicted = PredictedOutput(request),
                          .output_tokens = request.output_count(),
                          .tenant_received = tenant_share_.Received(request.input.tenant),
                          .prefix_group = request.prefix_group,
                          .priority = request.input.priority,
                          .granted = request.fetch.done};
  const auto within = [](TimeNs since, int64_t wished, int64_t usual) {
    const int64_t ns = wished != 0 ? wished : usual;
    return ns == 0 || since == kTimeNever ? kTimeNever : since + ns;
  };
  view.first_token_due = within(request.arrived_at, request.input.first_token_ns, options_.first_token_ns);
  view.next_token_due = within(request.last_token_at, request.input.next_token_ns, options_.next_token_ns);
  if (request.has_memory) {
    view.tokens_cached = 0;
    view.granted = false;
    view.context_tokens = memory_.LiveTokens(request.id);
    view.blocks_held = memory_.BlocksHeld(request.id);
    view.blocks_own = memory_.BlocksOwn(request.id);
  }
  return view;
}

/// Asks the policy, and puts back whom it preempts.
void Engine::Decide(TimeNs now) {
  KeepQuotas();
  running_views_.clear();
  for (const auto& request : running_) running_views_.push_back(ViewOf(*request));
  const step::ExecutorLimits& limits = executor_.Limits();
  const sched::StepBudget budget{.tokens_max = limits.tokens_per_step_max,
                                 .requests_max = limits.slices_per_step_max,
                                 .blocks_free = CollectWaiting(now),
                                 .block_tokens = limits.block_tokens,
                                 .cost = step_time_.cost(),
                                 .busy_share = busy_share_.share()};
  policy_.Decide(running_views_, waiting_views_, budget, now, decision_);
  KVIST_CHECK(sched::FindFault(running_views_, waiting_views_, budget, decision_).empty());
  for (const RequestId id : decision_.preempt) Preempt(*FindRequest(id));
}

bool Engine::StartStep() {
  if (running_.empty() && waiting_.empty()) return false;
  const TimeNs now = clock_.Now();
  LookAgain();
  do {
    Decide(now);
  } while (FetchForAdmitted(now));
  plan_.Clear();
  prompts_cut_ = false;
  // Who begins has what is cached of its text before others take frames.
  for (const sched::Advance& advance : decision_.advance) {
    if (Request* request = FindRequest(advance.request); !request->has_memory) Begin(*request);
  }
  for (const sched::Advance& advance : decision_.advance) {
    Request* request = FindRequest(advance.request);
    AddSlice(*request, std::min(advance.tokens, request->known() - request->computed));
    prompts_cut_ |= advance.tokens < request->known() - request->computed;
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
  request.computed = memory_.Begin(request.id, request.input.cache_namespace, request.tokens, request.input.ops,
                                   request.leader, request.ReuseMax());
  request.has_memory = true;
  if (tiers_) tiers_->TextBegins(request);
  TraceBegin(request);
  if (!request.counted) {
    request.counted = true;
    request.usage.cached_tokens = std::min(request.computed, request.usage.prompt_tokens);
    request.meter->prompt_tokens = request.usage.prompt_tokens;
    request.meter->cached_tokens = request.usage.cached_tokens;
    work_.prompt_tokens += request.usage.prompt_tokens;
    work_.cached_tokens += request.usage.cached_tokens;
  }
  running_.push_back(TakeFrom(waiting_, request.id));
}

/// When there are no frames for it, the request has no part in this step.
void Engine::AddSlice(Request& request, uint32_t tokens) {
  tokens = std::min(tokens, memory_.TokensUntilOp(request.id));
  bool reserved = memory_.Reserve(request.id, request.computed + tokens);
  while (!reserved && TakeHeldFrames()) {
    reserved = memory_.Reserve(request.id, request.computed + tokens);
  }
  if (!reserved) {
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
  const bool whole = request.computed + tokens == request.known();
  slice.want_hidden = whole && request.input.want_hidden;
  AddScores(request, slice);
  if (whole && !slice.want_hidden && request.output_max > 0) {
    slice.sampling = request.input.sampling;
    slice.counts_begin = static_cast<uint32_t>(plan_.counts.size());
    slice.counts_count = static_cast<uint32_t>(request.counts.size());
    plan_.counts.insert(plan_.counts.end(), request.counts.begin(), request.counts.end());
    slice.biases_begin = static_cast<uint32_t>(plan_.biases.size());
    slice.biases_count = static_cast<uint32_t>(request.input.biases.size());
    plan_.biases.insert(plan_.biases.end(), request.input.biases.begin(), request.input.biases.end());
    AddAllowed(request, slice);
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

}  // namespace kvist::engine
