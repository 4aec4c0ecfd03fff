#include "lab/device_replay.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "engine/request_trace.h"
#include "lab/virtual_engine.h"

namespace kvist::lab {
namespace {

engine::GenerationRequest RequestOf(const workload::Trace& trace, size_t index, uint32_t vocab_size) {
  const workload::TraceRequest& entry = trace.requests[index];
  engine::GenerationRequest request;
  request.prompt = workload::PromptTokens(entry, trace.block_tokens, vocab_size, index);
  if (request.prompt.empty()) request.prompt.push_back(TokenId{0});
  request.max_tokens = std::max(entry.output_tokens, 1u);
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  return request;
}

/// What is seen of the requests. One thread.
class Records {
 public:
  explicit Records(const workload::Trace& trace) {
    result_.records.resize(trace.requests.size());
    result_.queued_s.resize(trace.requests.size());
    for (uint32_t i = 0; i < trace.requests.size(); ++i) {
      result_.records[i].conversation = i;
      result_.records[i].counted_by_server = true;
      result_.records[i].text_s.reserve(trace.requests[i].output_tokens);
    }
  }

  void Begin(size_t index, double due_s) { result_.records[index].due_s = result_.records[index].sent_s = due_s; }

  /// @param token_s  when the tokens of the event are there
  void See(size_t index, const engine::GenerationEvent& event, double token_s) {
    LoadRecord& record = result_.records[index];
    for (size_t i = 0; i < event.token_ids.size(); ++i) record.text_s.push_back(token_s);
    if (event.finish == engine::FinishReason::kNone) return;
    record.end_s = token_s;
    record.prompt_tokens = event.usage.prompt_tokens;
    record.cached_tokens = event.usage.cached_tokens;
    record.output_tokens = event.usage.output_tokens;
    if (event.finish == engine::FinishReason::kError) {
      record.outcome = LoadOutcome::kRefused;
      record.why = std::string(event.status.message());
    } else if (event.trace != nullptr && event.trace->began_at != kTimeNever) {
      result_.queued_s[index] = Seconds(event.trace->began_at - event.trace->arrived_at);
    }
    result_.duration_s = std::max(result_.duration_s, token_s);
  }

  DeviceReplayResult& result() { return result_; }

 private:
  DeviceReplayResult result_;
};

/// In virtual time.
class VirtualRun {
 public:
  VirtualRun(const Tokenizer& tokenizer, const workload::Trace& trace, const DeviceReplayOptions& options)
      : trace_(trace),
        vocab_size_(tokenizer.vocab_size()),
        concurrency_(options.concurrency),
        records_(trace),
        world_(tokenizer, WorldOf(options)) {}

  DeviceReplayResult Run() {
    if (concurrency_ > 0) {
      while (next_ < std::min<size_t>(concurrency_, trace_.requests.size())) Submit(0);
    }
    do {
      if (concurrency_ > 0) continue;
      for (; next_ < trace_.requests.size() && ArrivalNs(next_) <= world_.now_ns();) Submit(Seconds(ArrivalNs(next_)));
    } while (world_.Advance(concurrency_ == 0 && next_ < trace_.requests.size() ? ArrivalNs(next_) : INT64_MAX));
    DeviceReplayResult& result = records_.result();
    result.stats = world_.engine().Stats();
    result.totals = executor_->totals();
    if (const auto& profile = executor_->model().options().profile) {
      result.profile_asked = profile->asked();
      result.profile_outside = profile->outside();
    }
    return std::move(result);
  }

 private:
  VirtualEngineOptions WorldOf(const DeviceReplayOptions& options) {
    VirtualEngineOptions world{
        .policy = options.policy,
        .policy_options = {.chunk_tokens_max = options.tokens_per_step_max, .prefills_max = options.requests_max},
        .blocks = options.blocks,
        .requests_max = options.requests_max,
        .tokens_per_step_max = options.tokens_per_step_max,
        .reuse = options.reuse};
    world.make_executor = [this, &options](const step::ExecutorLimits& limits, TokenId letter, const Clock& clock) {
      auto executor = std::make_unique<exec::EmulatedExecutor>(
          options.model,
          exec::EmulatedOptions{.limits = limits, .tokens = {.alphabet = {letter}}, .plan_ahead = options.plan_ahead},
          clock);
      executor_ = executor.get();
      return executor;
    };
    return world;
  }

  int64_t ArrivalNs(size_t index) const { return static_cast<int64_t>(trace_.requests[index].at_s * 1e9); }

  void Submit(double due_s) {
    const size_t index = next_++;
    records_.Begin(index, due_s);
    world_.engine().Submit(RequestOf(trace_, index, vocab_size_), [this, index](engine::GenerationEvent&& event) {
      const bool failed = event.finish == engine::FinishReason::kError;
      const double now_s = Seconds(failed ? world_.now_ns() : executor_->last_finished_at().value);
      records_.See(index, event, now_s);
      const bool ended = event.finish != engine::FinishReason::kNone;
      if (ended && concurrency_ > 0 && next_ < trace_.requests.size()) Submit(now_s);
    });
  }

  const workload::Trace& trace_;
  const uint32_t vocab_size_, concurrency_;
  Records records_;
  size_t next_ = 0;
  exec::EmulatedExecutor* executor_ = nullptr;  ///< Of world_.
  VirtualEngine world_;
};

/// In real time: requests are sent at their times, the engine runs on its own thread.
DeviceReplayResult RunInRealTime(const Tokenizer& tokenizer, const workload::Trace& trace,
                                 const DeviceReplayOptions& options) {
  RealClock clock;
  kv::KvMemory memory({.frames_count = options.blocks, .reuse = options.reuse});
  const TokenId letter = tokenizer.Encode("a", {.add_special = false}).front();
  exec::EmulatedExecutor executor(options.model,
                                  {.limits = {.tokens_per_step_max = options.tokens_per_step_max,
                                              .slices_per_step_max = options.requests_max,
                                              .block_tokens = kv::kBlockTokens,
                                              .vocab_size = tokenizer.vocab_size(),
                                              .context_tokens_max = options.blocks * kv::kBlockTokens},
                                   .tokens = {.alphabet = {letter}},
                                   .real_time = true},
                                  clock);
  const auto policy =
      sched::FindPolicy(options.policy)
          ->make({.chunk_tokens_max = options.tokens_per_step_max, .prefills_max = options.requests_max});
  engine::Engine engine(executor, memory, *policy, tokenizer, clock, {.waiting_max = UINT32_MAX});
  Records records(trace);
  std::mutex mutex;
  std::condition_variable ended;
  size_t under_way = 0;
  engine.Start();
  const TimeNs start = clock.Now();
  for (size_t i = 0; i < trace.requests.size(); ++i) {
    engine::GenerationRequest request = RequestOf(trace, i, tokenizer.vocab_size());
    if (options.concurrency == 0) {
      const int64_t wait_ns = start + static_cast<int64_t>(trace.requests[i].at_s * 1e9) - clock.Now();
      if (wait_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(wait_ns));
    }
    std::unique_lock lock(mutex);
    ended.wait(lock, [&] { return options.concurrency == 0 || under_way < options.concurrency; });
    ++under_way;
    records.Begin(i, options.concurrency == 0 ? trace.requests[i].at_s : Seconds(clock.Now() - start));
    lock.unlock();
    engine.Submit(std::move(request), [&, i](engine::GenerationEvent&& event) {
      std::lock_guard seen(mutex);
      records.See(i, event, Seconds(clock.Now() - start));
      if (event.finish == engine::FinishReason::kNone) return;
      --under_way;
      ended.notify_one();
    });
  }
  engine.Stop(/*drain=*/true);
  DeviceReplayResult& result = records.result();
  result.stats = engine.Stats();
  result.totals = executor.totals();
  return std::move(result);
}

}  // namespace

absl::StatusOr<DeviceReplayResult> ReplayOnDevice(const Tokenizer& tokenizer, const workload::Trace& trace,
                                                  const DeviceReplayOptions& options) {
  if (sched::FindPolicy(options.policy) == nullptr) {
    return absl::InvalidArgumentError(Cat("no policy is called \"", options.policy, "\""));
  }
  if (options.blocks < 2) {
    return absl::InvalidArgumentError(Cat("KV memory of ", options.blocks, " blocks; at least 2 are needed"));
  }
  if (options.real_time) return RunInRealTime(tokenizer, trace, options);
  return VirtualRun(tokenizer, trace, options).Run();
}

}  // namespace kvist::lab
