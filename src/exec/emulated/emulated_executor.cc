#include "exec/emulated/emulated_executor.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/status.h"
#include "step/check_limits.h"

namespace kvist::exec {
namespace {

EmulatedOptions WithLimitsOf(const step::Executor* computes, EmulatedOptions options) {
  if (computes != nullptr) options.limits = computes->Limits();
  return options;
}

}  // namespace

EmulatedExecutor::EmulatedExecutor(cost::StepModel model, EmulatedOptions options, const Clock& clock)
    : EmulatedExecutor(std::move(model), std::move(options), clock, nullptr) {}

EmulatedExecutor::EmulatedExecutor(cost::StepModel model, EmulatedOptions options, const Clock& clock,
                                   std::unique_ptr<step::Executor> computes)
    : model_(std::move(model)),
      options_(WithLimitsOf(computes.get(), std::move(options))),
      clock_(clock),
      name_(Cat("emulated-", model_.options().device.name)),
      computes_(std::move(computes)) {
  KVIST_CHECK(options_.limits.steps_in_flight_max == 1);
  KVIST_CHECK(computes_ != nullptr ? options_.real_time : !options_.tokens.alphabet.empty());
  KVIST_CHECK(!(options_.real_time && options_.plan_ahead));
  if (computes_) {
    computes_->SetWake([this] {
      {
        std::lock_guard lock(mutex_);
        ++steps_computed_;
      }
      changed_.notify_one();
    });
  }
  if (options_.real_time) timer_thread_ = std::thread([this] { TimerLoop(); });
}

EmulatedExecutor::~EmulatedExecutor() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (timer_thread_.joinable()) timer_thread_.join();
  if (computes_) computes_->SetWake(nullptr);
}

void EmulatedExecutor::SetWake(std::function<void()> wake) {
  std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
}

void EmulatedExecutor::TimerLoop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    // Steps are counted, as the word of one that was taken before may come late.
    const bool computing = computes_ && steps_computed_ < steps_given_;
    if (!timer_ || computing) {
      changed_.wait(lock);
      continue;
    }
    const int64_t left_ns = *timer_ - clock_.Now();
    if (left_ns > 0) {
      changed_.wait_for(lock, std::chrono::nanoseconds(left_ns));
      continue;
    }
    timer_.reset();
    if (wake_) wake_();  // Under the lock: it must not outlive SetWake(nullptr).
  }
}

uint32_t EmulatedExecutor::ViewOf(const step::StepPlan& plan, const step::Slice& slice) const {
  uint32_t view = 0;
  for (uint32_t i = 0; i < slice.segments_count; ++i) view += plan.segments[slice.segments_begin + i].tokens_count;
  return view;
}

cost::StepLoad EmulatedExecutor::LoadOf(const step::StepPlan& plan) const {
  cost::StepLoad load;
  const uint32_t window = model_.options().shape.window;
  for (const step::Slice& slice : plan.slices) {
    KVIST_CHECK(slice.tokens_count > 0);
    const bool head = slice.sampling.has_value() || slice.scores_count > 0 || slice.logits_rows > 0;
    load.Add(slice.tokens_count, ViewOf(plan, slice) - slice.tokens_count, head, window);
  }
  return load;
}

/// What follows after row `row` of a slice.
TokenId EmulatedExecutor::NextOf(const step::StepPlan& plan, const step::Slice& slice, uint32_t row) const {
  const TokenId next = options_.tokens.Next(plan.tokens[slice.tokens_begin + row].known, slice.position + row);
  if (slice.allowed_count == 0 || row + 1 != slice.tokens_count) return next;
  const auto allowed = [&](uint32_t token) {
    return (plan.allowed[slice.allowed_begin + token / 32] >> (token % 32) & 1) != 0;
  };
  uint32_t token = next.value;
  const uint32_t vocab = options_.limits.vocab_size;
  for (uint32_t tried = 0; tried < vocab && !allowed(token); ++tried) token = (token + 1) % vocab;
  return TokenId{token};
}

void EmulatedExecutor::FillSampled(const step::StepPlan& plan, const step::Slice& slice,
                                   step::StepResult& result) const {
  const TokenId token = NextOf(plan, slice, slice.tokens_count - 1);
  result.sampled.push_back(token);
  if (!slice.sampling->want_logprobs) return;
  const uint32_t vocab = options_.limits.vocab_size;
  result.logprobs.push_back({token, SyntheticTokens::Logprob(true, vocab)});
  AppendBest(token, slice.sampling->logprobs_count, result.logprobs);
}

/// The likeliest tokens where `next` follows.
void EmulatedExecutor::AppendBest(TokenId next, uint32_t count, std::vector<step::TokenLogprob>& out) const {
  const uint32_t vocab = options_.limits.vocab_size;
  for (uint32_t i = 0; i < count; ++i) {
    out.push_back({TokenId{(next.value + i) % vocab}, SyntheticTokens::Logprob(i == 0, vocab)});
  }
}

void EmulatedExecutor::FillExtras(const step::StepPlan& plan, const step::Slice& slice,
                                  step::StepResult& result) const {
  const uint32_t vocab = options_.limits.vocab_size;
  for (uint32_t i = 0; i < slice.scores_count; ++i) {
    const TokenId next = NextOf(plan, slice, slice.scores_row + i);
    const TokenId target = plan.score_targets[slice.scores_begin + i];
    result.scores.push_back(SyntheticTokens::Logprob(next == target, vocab));
    AppendBest(next, slice.scores_top, result.score_tops);
  }
  if (slice.want_hidden) {
    const TokenId last = plan.tokens[slice.tokens_begin + slice.tokens_count - 1].known;
    const uint32_t position = slice.position + slice.tokens_count - 1;
    for (uint32_t i = 0; i < options_.limits.hidden_size; ++i) {
      result.hidden.push_back(static_cast<float>(2 * UniformAt(Mix64(last.value) ^ position, i) - 1));
    }
  }
  for (uint32_t i = 0; i < slice.logits_rows; ++i) {
    const size_t row = result.logits.size();
    result.logits.resize(row + vocab, SyntheticTokens::Logprob(false, vocab));
    const TokenId next = NextOf(plan, slice, slice.tokens_count - slice.logits_rows + i);
    result.logits[row + next.value] = SyntheticTokens::Logprob(true, vocab);
  }
  const auto view = static_cast<float>(ViewOf(plan, slice));
  for (uint32_t i = 0; i < slice.mass_count; ++i) {
    const step::ViewRange& range = plan.mass_ranges[slice.mass_begin + i];
    result.range_mass.push_back(static_cast<float>(range.end - range.begin) / view);
  }
}

void EmulatedExecutor::FillOutputs(const step::StepPlan& plan, step::StepResult& result) const {
  result.sampled.clear();
  result.logprobs.clear();
  result.scores.clear();
  result.score_tops.clear();
  result.hidden.clear();
  result.logits.clear();
  result.missing.clear();
  result.range_mass.clear();
  for (const step::Slice& slice : plan.slices) {
    if (slice.sampling) FillSampled(plan, slice, result);
    const bool plain = slice.scores_count == 0 && slice.logits_rows == 0 && slice.mass_count == 0;
    if (!plain || slice.want_hidden) FillExtras(plan, slice, result);
  }
}

void EmulatedExecutor::Synthesize(step::StepPlan&& plan) {
  step::StepResult& result = result_.emplace(std::exchange(spare_, {}));
  result.id = plan.id;
  FillOutputs(plan, result);
  result.plan = std::move(plan);
}

absl::Status EmulatedExecutor::Submit(step::StepPlan&& plan) {
  if (result_ || computing_) return absl::UnavailableError("one step at a time");
  KVIST_RETURN_IF_ERROR(step::CheckLimits(plan, options_.limits));
  const cost::StepLoad load = LoadOf(plan);
  const TimeNs now = clock_.Now();
  if (computes_) {
    KVIST_RETURN_IF_ERROR(computes_->Submit(std::move(plan)));
    computing_ = true;
  } else {
    Synthesize(std::move(plan));
  }
  const bool outside_before = model_.profile_use().outside > 0;
  const cost::StepCost cost = model_.Cost(load);
  const cost::ProfileUse& use = model_.profile_use();
  if (!outside_before && use.outside > 0 && options_.notices.outside_profile) {
    options_.notices.outside_profile(use.worst);
  }
  // In real time the host's part passes by itself.
  const double ns = cost.ns() - (options_.real_time ? cost.host_ns : 0);
  step_.started_at = std::max(now, device_free_at_);
  step_.finished_at = step_.started_at + std::max<int64_t>(static_cast<int64_t>(ns), 1);
  step_.bytes_moved = static_cast<uint64_t>(cost.bytes);
  step_.kv_bytes_read = static_cast<uint64_t>((load.decode_keys + load.prompt_keys) * model_.kv_bytes_per_token());
  device_free_at_ = step_.finished_at;
  ready_at_ = options_.plan_ahead ? step_.started_at : step_.finished_at;
  ++totals_.steps;
  totals_.tokens += load.tokens;
  totals_.cost += cost;
  if (!options_.real_time) return absl::OkStatus();
  {
    std::lock_guard lock(mutex_);
    timer_ = ready_at_;
    ++steps_given_;
  }
  changed_.notify_one();
  return absl::OkStatus();
}

/// The small model has its results. They are not shown before the device would have them.
void EmulatedExecutor::TakeComputed() {
  computing_ = false;
  const int64_t late_ns = result_->finished_at - step_.finished_at;
  if (late_ns <= 0) return;
  const bool first = late_steps_.fetch_add(1) == 0;
  late_ns_ += late_ns;
  const int64_t device_ns = step_.finished_at - step_.started_at;
  if (first && options_.notices.late) options_.notices.late(device_ns, device_ns + late_ns);
  step_.finished_at = device_free_at_ = ready_at_ = result_->finished_at;
}

absl::StatusOr<std::optional<step::StepResult>> EmulatedExecutor::Poll() {
  if (computing_) {
    absl::StatusOr<std::optional<step::StepResult>> computed = computes_->Poll();
    computing_ = computed.ok();
    if (!computed.ok() || !computed->has_value()) return computed;
    result_ = *std::move(computed);
    TakeComputed();
  }
  if (!result_ || ready_at_ > clock_.Now()) return std::optional<step::StepResult>();
  result_->started_at = step_.started_at;
  result_->finished_at = last_finished_at_ = step_.finished_at;
  result_->bytes_moved = step_.bytes_moved;
  result_->kv_bytes_read = step_.kv_bytes_read;
  return std::exchange(result_, std::nullopt);
}

void EmulatedExecutor::Recycle(step::StepResult&& result) {
  if (computes_) return computes_->Recycle(std::move(result));
  spare_ = std::move(result);
}

std::optional<TimeNs> EmulatedExecutor::NextCompletion() const {
  // A model that computes has not said when it will be done.
  return result_ ? std::optional(ready_at_) : std::nullopt;
}

}  // namespace kvist::exec
