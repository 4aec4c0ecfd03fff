// What the engine learns from its steps, and what it expects of them: prices of work, lengths of outputs, waits.

#include <algorithm>

#include "engine/engine.h"
#include "sched/step_work.h"

namespace kvist::engine {
namespace {

constexpr double kPaceKept = 0.9;         // Weight of what was before a step,
constexpr double kOutputRate = 1.0 / 16;  // and of an output that has just ended.
constexpr uint32_t kOutputTokens = 256;   // Before any has.
constexpr uint32_t kPromptStep = 256;

}  // namespace

void Engine::Learn(const step::StepResult& result) {
  const sched::StepWork work = sched::WorkOf(result.plan);
  const int64_t step_ns = result.finished_at - result.started_at;
  step_time_.Observe(work, step_ns);
  busy_share_.Observe(result.finished_at, step_ns, work.prompt_tokens > 0 || !waiting_.empty());
  if (!prompts_cut_ || work.prompt_tokens == 0) return;
  paced_ns_ = kPaceKept * paced_ns_ + static_cast<double>(step_ns);
  paced_tokens_ = kPaceKept * paced_tokens_ + work.prompt_tokens;
}

void Engine::CountOutput(const Request& request) {
  const double tokens = request.output_count();
  output_tokens_mean_ =
      output_tokens_mean_ == 0 ? tokens : output_tokens_mean_ + kOutputRate * (tokens - output_tokens_mean_);
}

uint32_t Engine::PredictedOutput(const Request& request) const {
  uint32_t tokens = request.input.output_tokens_predicted;
  if (tokens == 0) tokens = output_tokens_mean_ > 0 ? static_cast<uint32_t>(output_tokens_mean_) + 1 : kOutputTokens;
  return std::min(tokens, std::max(request.output_max, 1u));
}

uint32_t Engine::PredictedOutputLeft(const Request& request) const {
  const uint32_t given = request.output_count();
  const uint32_t predicted = PredictedOutput(request);
  // One that has outlived what was predicted shows no end: lengths have long tails.
  const uint32_t left = std::max(predicted > given ? predicted - given : 1, given / 2);
  return request.output_max > given ? std::min(left, request.output_max - given) : 1;
}

sched::QueueFacts Engine::QueueFactsNow() const {
  const sched::StepCost& cost = step_time_.cost();
  sched::QueueFacts queue{
      .prompt_token_ns = paced_tokens_ > 0 ? paced_ns_ / paced_tokens_ : cost.PromptNs(kPromptStep, 0) / kPromptStep,
      .running = static_cast<uint32_t>(running_.size()),
      .waiting = static_cast<uint32_t>(waiting_.size()),
      .running_max = executor_.Limits().slices_per_step_max};
  sched::StepWork tokens;
  for (const auto& request : running_) {
    queue.running_tokens_left += PredictedOutputLeft(*request);
    const uint32_t missing = request->known() - request->computed;
    if (missing > 1) queue.prompt_tokens += missing;
    tokens.Add(1, request->has_memory ? memory_.LiveTokens(request->id) : 0, /*samples=*/true);
  }
  for (const auto& request : waiting_) {
    const uint32_t read = request->fetch.under_way ? request->fetch.blocks * kv::kBlockTokens : request->seen.tokens;
    queue.prompt_tokens += request->known() - read;
  }
  if (queue.running > 0) {
    queue.running_tokens_left /= queue.running;
    queue.token_ns = cost.Ns(tokens);
  }
  return queue;
}

int64_t Engine::PredictedWaitNs(uint64_t prompt_tokens) const {
  sched::QueueFacts queue;
  {
    std::lock_guard lock(mutex_);
    queue = queue_;
    queue.waiting += inbox_requests_;
    queue.prompt_tokens += inbox_tokens_;
  }
  return static_cast<int64_t>(std::min(sched::PredictedWaitNs(queue, prompt_tokens), 1e18));
}

}  // namespace kvist::engine
