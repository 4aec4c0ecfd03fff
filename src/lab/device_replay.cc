#include "lab/device_replay.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "base/prng.h"
#include "base/status.h"
#include "engine/request_trace.h"
#include "lab/replica.h"

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

HostFigures FiguresOf(const HostTier& host, const engine::TierStats& moves) {
  return {.restores = moves.fetches,
          .restored_blocks = moves.restored_blocks,
          .restore_ns = moves.fetch_ns,
          .computed_instead = moves.computed_instead,
          .evicted_blocks = host.Figures().front().evicted_blocks,
          .to_host = host.to_host(),
          .to_device = host.to_device()};
}

/// What is seen of the requests. One thread.
class Records {
 public:
  explicit Records(const workload::Trace& trace) {
    result_.records.resize(trace.requests.size());
    result_.queued_s.resize(trace.requests.size());
    result_.replica.resize(trace.requests.size());
    for (uint32_t i = 0; i < trace.requests.size(); ++i) {
      result_.records[i].conversation = i;
      result_.records[i].counted_by_server = true;
      result_.records[i].text_s.reserve(trace.requests[i].output_tokens);
    }
  }

  void Begin(size_t index, size_t replica, double due_s) {
    result_.records[index].due_s = result_.records[index].sent_s = due_s;
    result_.replica[index] = static_cast<uint32_t>(replica);
  }

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
        routing_(options.routing),
        records_(trace) {
    const Replica::MakeDevice make_device = [&options](const step::ExecutorLimits& limits, TokenId letter,
                                                       const Clock& clock) {
      return std::make_unique<exec::EmulatedExecutor>(
          options.model,
          exec::EmulatedOptions{.limits = limits, .tokens = {.alphabet = {letter}}, .plan_ahead = options.plan_ahead},
          clock);
    };
    // Less by what sums of the same numbers in another order may differ by.
    const int64_t floor_ns = std::max<int64_t>(
        static_cast<int64_t>(cost::StepModel(options.model).FloorNs(options.tokens_per_step_max)) - 1, 0);
    for (uint32_t i = 0; i < options.replicas; ++i) {
      replicas_.push_back(std::make_unique<Replica>(tokenizer, WorldOf(options), make_device, floor_ns, options.host));
    }
  }

  DeviceReplayResult Run() {
    const size_t at_once = std::min<size_t>(concurrency_, trace_.requests.size());
    while (next_ < at_once) Submit(0, 0);
    while (concurrency_ == 0 && next_ < trace_.requests.size()) {
      const auto at_ns = static_cast<int64_t>(trace_.requests[next_].at_s * 1e9);
      const size_t chosen = Route(at_ns);
      replicas_[chosen]->AdvanceTo(at_ns);
      Submit(chosen, Seconds(at_ns));
    }
    DeviceReplayResult& result = records_.result();
    for (const auto& replica : replicas_) {
      replica->AdvanceTo(INT64_MAX);
      const exec::EmulatedTotals& totals = replica->executor().totals();
      result.totals.steps += totals.steps;
      result.totals.tokens += totals.tokens;
      result.totals.cost += totals.cost;
      result.busy_s.push_back(totals.cost.ns() * 1e-9);
      result.preemptions += replica->engine().Stats().preemptions;
      result.profile_use += replica->executor().model().profile_use();
      if (const HostTier* host = replica->host()) result.host += FiguresOf(*host, replica->engine().Stats().tiers);
    }
    result.stats = replicas_.front()->engine().Stats();
    return std::move(result);
  }

 private:
  static VirtualEngineOptions WorldOf(const DeviceReplayOptions& options) {
    return {.policy = options.policy,
            .policy_options = {.chunk_tokens_max = options.tokens_per_step_max, .prefills_max = options.requests_max},
            .blocks = options.blocks,
            .requests_max = options.requests_max,
            .tokens_per_step_max = options.tokens_per_step_max,
            .buckets = 1,  // Exact order of use, as engines with one list of free blocks have it.
            .reuse = options.reuse};
  }

  size_t Route(int64_t at_ns) {
    return routing_ == Routing::kRoundRobin ? next_ % replicas_.size() : LeastLoaded(at_ns);
  }

  /// The first of those with the fewest requests under way at an instant. Only those that may be it are advanced.
  size_t LeastLoaded(int64_t at_ns) {
    at_least_.clear();
    for (const auto& replica : replicas_) at_least_.push_back(replica->SurelyUnderWay(at_ns));
    while (true) {
      const auto least = static_cast<size_t>(std::ranges::min_element(at_least_) - at_least_.begin());
      Replica& replica = *replicas_[least];
      if (replica.UnderWay() == at_least_[least]) return least;
      replica.AdvanceTo(at_ns);
      at_least_[least] = replica.UnderWay();
    }
  }

  void Submit(size_t chosen, double due_s) {
    const size_t index = next_++;
    Replica& replica = *replicas_[chosen];
    records_.Begin(index, chosen, due_s);
    replica.Submit(RequestOf(trace_, index, vocab_size_),
                   [this, chosen, &replica, index](engine::GenerationEvent&& event) {
                     const bool failed = event.finish == engine::FinishReason::kError;
                     const TimeNs now = failed ? TimeNs{replica.now_ns()} : replica.executor().last_finished_at();
                     records_.See(index, event, Seconds(now.value));
                     if (event.finish == engine::FinishReason::kNone) return;
                     const bool more = concurrency_ > 0 && next_ < trace_.requests.size();
                     if (more) Submit(chosen, Seconds(now.value));
                   });
  }

  const workload::Trace& trace_;
  const uint32_t vocab_size_, concurrency_;
  const Routing routing_;
  Records records_;
  size_t next_ = 0;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<size_t> at_least_;  ///< Requests under way on each of them.
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
    records.Begin(i, /*replica=*/0, options.concurrency == 0 ? trace.requests[i].at_s : Seconds(clock.Now() - start));
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
  result.profile_use = executor.model().profile_use();
  result.busy_s = {result.totals.cost.ns() * 1e-9};
  result.preemptions = result.stats.preemptions;
  return std::move(result);
}

}  // namespace

HostFigures& HostFigures::operator+=(const HostFigures& other) {
  restores += other.restores;
  restored_blocks += other.restored_blocks;
  restore_ns += other.restore_ns;
  computed_instead += other.computed_instead;
  evicted_blocks += other.evicted_blocks;
  to_host += other.to_host;
  to_device += other.to_device;
  return *this;
}

workload::Trace CopiesOf(const workload::Trace& trace, uint32_t copies) {
  workload::Trace out{.block_tokens = trace.block_tokens, .requests = {}};
  if (trace.requests.empty()) return out;
  out.requests.reserve(trace.requests.size() * copies);
  const double span_s = trace.requests.back().at_s;
  for (uint32_t copy = 0; copy < copies; ++copy) {
    for (const workload::TraceRequest& request : trace.requests) {
      workload::TraceRequest& placed = out.requests.emplace_back(request);
      placed.at_s += span_s * copy / copies;
      if (placed.at_s > span_s) placed.at_s -= span_s;
      // Each crowd has texts of its own.
      for (uint64_t& hash : placed.block_hashes) hash = Mix64(hash ^ Mix64(copy));
    }
  }
  std::ranges::stable_sort(out.requests, {}, &workload::TraceRequest::at_s);
  return out;
}

absl::StatusOr<DeviceReplayResult> ReplayOnDevice(const Tokenizer& tokenizer, const workload::Trace& trace,
                                                  const DeviceReplayOptions& options) {
  if (sched::FindPolicy(options.policy) == nullptr) {
    return absl::InvalidArgumentError(Cat("no policy is called \"", options.policy, "\""));
  }
  if (options.blocks < 2) {
    return absl::InvalidArgumentError(Cat("KV memory of ", options.blocks, " blocks; at least 2 are needed"));
  }
  if (options.replicas == 0 || (options.replicas > 1 && (options.real_time || options.concurrency > 0))) {
    return absl::InvalidArgumentError(
        Cat(options.replicas, " replicas: one or more, and in a closed loop or in real time just one"));
  }
  if (options.host && options.real_time) {
    return absl::InvalidArgumentError("memory of the host is emulated in virtual time only");
  }
  if (options.real_time) return RunInRealTime(tokenizer, trace, options);
  return VirtualRun(tokenizer, trace, options).Run();
}

}  // namespace kvist::lab
