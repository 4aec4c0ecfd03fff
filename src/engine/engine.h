#pragma once

/// @file
/// The step loop: requests come in, a policy decides how far each advances, an executor computes, tokens go out.
/// One thread owns all of it and calls RunOnce; other threads only post (Submit, Cancel). The engine waits for nothing
/// but its executor and its inbox, and takes time from the injected Clock, so the same loop serves users and runs in
/// virtual time. Non-goals: HTTP, templates, what an executor is.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "engine/generation.h"
#include "engine/memory_snapshot.h"
#include "engine/metering.h"
#include "engine/request.h"
#include "engine/step_log.h"
#include "engine/tier_figures.h"
#include "kv/cold_blocks.h"
#include "kv/kv_memory.h"
#include "modelfile/tokenizer.h"
#include "sched/busy_share.h"
#include "sched/policy.h"
#include "sched/step_time.h"
#include "sched/tenant_share.h"
#include "sched/wait_estimate.h"
#include "step/executor.h"

namespace kvist::kv {
class AdmissionPolicy;
}

namespace kvist::engine {

class TierMover;

struct EngineOptions {
  uint32_t waiting_max = 1024;  ///< Requests not yet started; more are refused.
  /// Wished times for requests that name none; 0 = none.
  int64_t first_token_ns = 0, next_token_ns = 0;
};

/// Snapshot for metrics; any thread.
struct EngineStats {
  uint64_t running = 0, waiting = 0;
  uint64_t steps = 0, preemptions = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0, computed_tokens = 0, generated_tokens = 0;
  uint64_t finished_stop = 0, finished_length = 0, finished_cancelled = 0, finished_error = 0;
  kv::MemoryFigures kv;
  uint64_t forced_tokens = 0;      ///< Of those generated: a grammar left no choice, so that none was sampled.
  uint64_t waited_for_prefix = 0;  ///< Requests held back while another computed their beginning.
  uint64_t step_ns = 0;            ///< Sum of step times.
  sched::StepCost step_cost;       ///< Prices of the work in a step as learnt so far, with their error.
  TierStats tiers;                 ///< Zero without tiers below hot memory.
  std::vector<kv::TierFigures> tier_figures;  ///< Of late.
  TimeNs last_step_at{0};                     ///< Start of the running step, or end of the last one.
};

class Engine {
 public:
  /// All references must outlive the engine. `memory` is the KV memory whose spans `executor` reads.
  Engine(step::Executor& executor, kv::KvMemory& memory, sched::SchedulerPolicy& policy, const Tokenizer& tokenizer,
         const Clock& clock, const EngineOptions& options = {});
  ~Engine();

  /// Every request has its meter from this book. Before the first request; the book outlives the engine.
  void SetMeterBook(MeterBook* book) { book_ = book; }

  /// Keeps blocks on tiers below hot memory. Before the first request; both outlive the engine.
  void SetColdBlocks(kv::ColdBlocks* cold, kv::AdmissionPolicy* admission, TierOptions options);

  /// The wished times of requests that name none change, soon. Any thread.
  void SetTargets(int64_t first_token_ns, int64_t next_token_ns);

  /// Queues a request. `sink` is called on the engine thread, in order; the last event has a finish reason. A request
  /// that can never run ends with an InvalidArgument event; a full queue ends it with ResourceExhausted. Any thread.
  RequestId Submit(GenerationRequest request, EventSink sink);

  /// Ends a request at once, whatever it is doing; its last event says kCancelled. Unknown ids are ignored. Any thread.
  void Cancel(RequestId id);

  /// Figures of tiers are of now, soon, also when there is nothing to do. Any thread.
  void RefreshTiers();

  /// Calls `receive` on the engine thread, soon, between two looks at the executor; not after Stop has returned. Any
  /// thread.
  void Inspect(SnapshotDetail detail, std::function<void(const MemorySnapshot&)> receive);

  /// As Inspect, with the state of a request as it is then, which goes on undisturbed; nullopt when there is no such
  /// request (any more). Any thread.
  void Snapshot(RequestId id, std::function<void(std::optional<Capsule>)> receive);

  /// One turn of the loop without blocking: takes posts, takes a finished step, starts the next one.
  /// @return false when there is nothing to do until a post or a completion. Errors of the executor end every request.
  bool RunOnce();

  /// When RunOnce has something to do although nothing was posted or completed; kTimeNever = never. For a loop that
  /// waits on the engine's clock.
  TimeNs NextDeadline() const;

  /// Runs the loop on a thread of its own until Stop.
  void Start();
  /// @param drain  finish what was submitted before; else cancel it. Later submissions are refused. Returns when idle.
  void Stop(bool drain);

  /// Longest prompt and output together. The smaller of the model's context and the KV memory.
  uint32_t context_tokens_max() const { return context_tokens_max_; }
  EngineStats Stats() const;
  const StepLog& step_log() const { return step_log_; }

  /// How long a request that came now would wait until its prompt is read and its first token is there, in nanoseconds:
  /// an estimate from the queue and the pace of late, as if nobody was overtaken. Any thread; cheap.
  /// @param prompt_tokens  of it that are not cached
  int64_t PredictedWaitNs(uint64_t prompt_tokens) const;

 private:
  struct Post {
    std::unique_ptr<Request> request;  ///< Null = call.
    std::function<void()> call;        ///< On the engine thread.
  };

  /// What a tenant that has a quota holds in this step: its running requests, and its pins.
  struct Holding {
    uint32_t requests = 0, blocks = 0;
  };

  void Call(std::function<void()> call);
  void AdvanceMeters();
  bool MetersTiers() const;
  void TellHoldings(TimeNs now);
  void CloseTiers();
  void KeepQuotas();
  Holding& HoldingOf(TenantId tenant);
  absl::Status CheckQuota(Request& request, uint32_t live);
  bool OverQuota(const Request& request);
  bool ExpireMemory();
  bool DrainInbox();
  bool TakeResult();
  bool StartStep();
  void Admit(std::unique_ptr<Request> request);
  absl::Status Check(const Request& request) const;
  void FindLeader(Request& request);
  bool WaitsForLeader(const Request& request);
  sched::RequestView ViewOf(const Request& request) const;
  void Begin(Request& request);
  void TraceBegin(Request& request);
  void TraceStep(Request& request, const step::StepResult& result, const step::Slice& slice);
  std::shared_ptr<const RequestTrace> TraceAtEnd(const Request& request) const;
  bool TurnTiers();
  uint32_t FramesWanted() const;
  void Look(Request& request);
  void LookAgain();
  bool HeldByTier(Request& request, TimeNs now);
  bool TakeHeldFrames(int urgency = -1);
  bool MayBegin(Request& request, TimeNs now);
  uint32_t CollectWaiting(TimeNs now);
  bool FetchForAdmitted(TimeNs now);
  void Decide(TimeNs now);
  bool YieldPins(const Request& request);
  void EndMemory(Request& request, bool may_pin);
  bool GiveWay();
  void ApplyCancel(RequestId id);
  void TellProgress(Request& request);
  void Preempt(Request& request);
  void AddSlice(Request& request, uint32_t tokens);
  void AddScores(const Request& request, step::Slice& slice);
  void TakeScores(Request& request, const step::StepResult& result, const step::Slice& slice, uint32_t tops_begin);
  void Learn(const step::StepResult& result);
  void CountOutput(const Request& request);
  uint32_t PredictedOutput(const Request& request) const;
  uint32_t PredictedOutputLeft(const Request& request) const;
  sched::QueueFacts QueueFactsNow() const;
  void SetBlocksSpared(Request& request) const;
  /// Where a slice's results begin.
  struct ResultPlace {
    uint32_t sampled = 0, logprobs = 0, hidden = 0, score_tops = 0;
  };
  void ApplySlice(const step::StepResult& result, const step::Slice& slice, const ResultPlace& place);
  void Finish(RequestId id, FinishReason reason, absl::Status status = absl::OkStatus());
  /// What an output that has grown has come to.
  struct Growth {
    FinishReason finish = FinishReason::kNone;
    absl::Status status;  ///< Not OK only with kError.
  };
  Growth Grow(Request& request, TokenEvent event);
  Growth Settle(Request& request);
  Growth BeginConstraint(Request& request);
  void AddAllowed(Request& request, step::Slice& slice);
  bool CancelAll();
  void FailAll(const absl::Status& status);
  void PublishStats();
  MemorySnapshot TakeMemorySnapshot(SnapshotDetail detail) const;
  Request* FindRequest(RequestId id);
  void Loop();

  step::Executor& executor_;
  kv::KvMemory& memory_;
  sched::SchedulerPolicy& policy_;
  const Tokenizer& tokenizer_;
  const Clock& clock_;
  EngineOptions options_;
  MeterBook* book_ = nullptr;
  std::unique_ptr<TierMover> tiers_;
  uint32_t context_tokens_max_;

  // Engine thread only.
  Requests running_;  ///< Admission order.
  Requests waiting_;  ///< Arrival order.
  std::vector<sched::RequestView> running_views_, waiting_views_;
  sched::StepDecision decision_;
  step::StepPlan plan_;
  bool in_flight_ = false;
  uint64_t next_step_ = 0;
  StepRecord record_;  ///< Of the step under way.
  StepLog step_log_;
  EngineStats work_;  ///< Counters as the engine thread sees them.
  absl::flat_hash_map<RequestId, Request*> by_id_;
  sched::StepTimeModel step_time_;
  sched::TenantShare tenant_share_;
  sched::BusyShare busy_share_;
  bool prompts_cut_ = false;                ///< The step under way leaves a part of its prompts for the next.
  double paced_ns_ = 0, paced_tokens_ = 0;  ///< Of such steps, weighted by how late: their time, their prompt tokens.
  double output_tokens_mean_ = 0;           ///< Of requests that ended, of late; 0 = none has.
  absl::flat_hash_map<TenantId, Holding> holdings_;  ///< Made anew for each step.
  size_t look_next_ = 0;                             ///< Of the waiting ones.
  TimeNs tier_figures_due_{0};
  TimeNs meters_due_{0};    ///< When running requests' meters are next brought up to date.
  TimeNs holdings_due_{0};  ///< When the book next hears of what tiers hold.

  mutable std::mutex mutex_;  ///< Guards what follows, but thread_.
  std::condition_variable wake_;
  std::vector<Post> inbox_;
  uint32_t inbox_requests_ = 0;
  uint64_t inbox_tokens_ = 0;  ///< Of their prompts.
  EngineStats stats_;
  sched::QueueFacts queue_;
  bool woken_ = false, stopping_ = false, draining_ = false;
  std::atomic<uint64_t> next_request_{1};
  std::thread thread_;
};

}  // namespace kvist::engine
