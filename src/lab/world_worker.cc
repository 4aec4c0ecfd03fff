#include "lab/world_worker.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "kv/tier/tier_stack.h"
#include "lab/world_executor.h"

namespace kvist::lab {
namespace {

constexpr uint64_t kFingerprint = 0x73696d;
/// More turns than that at one instant come from work that makes no headway.
constexpr int kTurnsMax = 100'000;
/// Of cold memory, copied at once: few, so that much happens meanwhile.
constexpr uint64_t kColdSliceBlocks = 3;
/// An engine's deadline that is over and brings nothing.
constexpr int64_t kPatienceNs = 100'000;

/// The machine's clock, which may be ahead.
class OffsetClock final : public Clock {
 public:
  OffsetClock(const Clock& base, const int64_t& offset_ns) : base_(base), offset_ns_(offset_ns) {}
  TimeNs Now() const override { return base_.Now() + offset_ns_; }

 private:
  const Clock& base_;
  const int64_t& offset_ns_;
};

/// What the engine sees of a clock never goes back.
class CheckedClock final : public Clock {
 public:
  CheckedClock(const Clock& inner, WorldLog& log) : inner_(inner), log_(log) {}
  TimeNs Now() const override {
    const TimeNs now = inner_.Now();
    if (now < last_) log_.Report("time", Cat("the clock goes back by ", last_ - now, " ns"));
    return last_ = std::max(last_, now);
  }

 private:
  const Clock& inner_;
  WorldLog& log_;
  mutable TimeNs last_{0};
};

/// Meters, and their sums.
class SimBook final : public engine::MeterBook {
 public:
  explicit SimBook(const bool& full) : full_(full) {}
  engine::Meter* Open(RequestId /*id*/, const engine::GenerationRequest& /*request*/) override {
    if (full_) return nullptr;
    auto meter = std::make_unique<engine::Meter>();
    return (open_[meter.get()] = std::move(meter)).get();
  }
  void Close(engine::Meter* meter, engine::FinishReason /*reason*/) override {
    Add(closed_, *meter);
    open_.erase(meter);
  }
  void TakeHoldings(std::span<const kv::TierHolding> /*holdings*/) override {}  // SimWorker asks the tiers.
  struct Sums {
    uint64_t computed = 0, generated = 0;
    int64_t step_ns = 0;
  };
  Sums sums() const {
    Sums all = closed_;
    for (const auto& [place, meter] : open_) Add(all, *meter);
    return all;
  }

 private:
  static void Add(Sums& sums, const engine::Meter& meter) {
    sums.computed += meter.computed_tokens;
    sums.generated += meter.generated_tokens;
    sums.step_ns += meter.step_share_ns;
  }
  const bool& full_;
  Sums closed_;
  std::map<engine::Meter*, std::unique_ptr<engine::Meter>> open_;
};

}  // namespace

/// What goes with the process.
struct SimWorker::Life {
  Life(SimWorker& worker, uint64_t seed)
      : offset_clock(worker.log_.clock(), worker.clock_offset_ns_),
        defective_clock(offset_clock, worker.dice_),
        clock(defective_clock, worker.log_),
        memory({.frames_count = worker.scenario_.frames,
                .fingerprint = kFingerprint,
                .uses_remembered = worker.HasTiers() ? 4 * worker.scenario_.frames : 0}),
        arena(*kv::FrameArena::Create(worker.scenario_.frames, kContentFrameBytes)),
        executor({.tokens_per_step_max = worker.scenario_.tokens_per_step,
                  .slices_per_step_max = worker.scenario_.requests_per_step,
                  .block_tokens = kv::kBlockTokens,
                  .vocab_size = kContentVocab,
                  .context_tokens_max = worker.scenario_.frames * kv::kBlockTokens},
                 sched::StepCost{}, memory.spans(), arena, clock, seed,
                 {.namespace_of = [this](RequestId id) { return JobOf(id).request.generation->cache_namespace; },
                  .fault_of = [this](RequestId id) { return JobOf(id).Fault(); },
                  .report = [&log = worker.log_](std::string_view checker,
                                                 std::string message) { log.Report(checker, std::move(message)); }}),
        defective_executor(executor, memory.spans(), arena, worker.dice_),
        book(worker.meters_full_),
        defective_book(book, worker.dice_) {}

  struct Job {
    SimRequest request;
    RequestId engine_id{};
    bool cancelled = false, ended = false;
    SimAnswer answer;
    std::string Fault() const { return cancelled ? "it was cancelled" : ended ? "it has ended" : ""; }
  };
  Job& JobOf(RequestId id) {
    const auto it = by_engine_id.find(id);
    KVIST_CHECK(it != by_engine_id.end());
    return *it->second;
  }

  OffsetClock offset_clock;
  DefectiveClock defective_clock;
  CheckedClock clock;
  kv::KvMemory memory;
  kv::FrameArena arena;
  ContentExecutor executor;
  DefectiveExecutor defective_executor;
  SimBook book;
  DefectiveBook defective_book;
  std::map<uint64_t, std::shared_ptr<Job>> jobs;  ///< [id of the router]
  std::map<RequestId, std::shared_ptr<Job>> by_engine_id;
  std::set<uint64_t> begun;
  uint64_t leaks = 0;
  bool dying = false;  ///< Nobody hears it any more.
  std::unique_ptr<sched::SchedulerPolicy> policy;
  std::unique_ptr<kv::ColdBlocks> tiers;
  kv::StoredBlocks* drive = nullptr;  ///< Of the tiers.
  std::unique_ptr<DefectiveColdBlocks> defective_cold;
  std::unique_ptr<CheckedColdBlocks> cold;
  uint64_t held_bytes = 0;  ///< By blocks of all tiers, since the last turn,
  double held_byte_ns = 0;  ///< and over time until then.
  TimeNs held_since = kTimeNever;
  std::unique_ptr<kv::AdmissionPolicy> admission;
  std::unique_ptr<engine::Engine> engine;
};

SimWorker::SimWorker(WorldLog& log, const SimScenario& scenario, uint32_t index, DefectDice& dice,
                     BlockRegistry& registry, std::function<void(const SimAnswer&)> send)
    : log_(log),
      scenario_(scenario),
      index_(index),
      dice_(dice),
      registry_(registry),
      send_(std::move(send)),
      prng_(Mix64(scenario.seed ^ Mix64(0x776f726b + index))),
      drive_(prng_.Next()),
      forgotten_(log) {
  Start();
}

SimWorker::~SimWorker() {
  if (life_ != nullptr) Kill(/*power=*/false);
}

void SimWorker::Start() {
  ++totals_.lives;
  life_ = std::make_unique<Life>(*this, prng_.Next());
  Life& life = *life_;
  const auto policies = sched::Policies();
  const std::string_view drawn = policies[prng_.Below(policies.size())].name;
  const std::string_view name = scenario_.policy.empty() ? drawn : std::string_view(scenario_.policy);
  log_.Add(Cat("worker ", index_, " starts, scheduling ", name));
  life.policy = sched::FindPolicy(name)->make({.chunk_tokens_max = static_cast<uint32_t>(16 + prng_.Below(100))});
  life.engine =
      std::make_unique<engine::Engine>(life.defective_executor, life.memory, *life.policy, tokenizer_, life.clock,
                                       engine::EngineOptions{.waiting_max = scenario_.waiting_max});
  life.engine->SetMeterBook(&life.defective_book);
  life.executor.SetSlowness(slowness_);
  OpenTiers(prng_.Next());
}

bool SimWorker::HasTiers() const {
  return scenario_.drive || scenario_.cold_memory > 0;
}

std::unique_ptr<kv::StoredBlocks> SimWorker::OpenDrive(uint64_t store_seed) {
  if (!scenario_.drive) return nullptr;
  absl::StatusOr<std::unique_ptr<kv::BlockStore>> store =
      kv::BlockStore::Open(drive_.Open(), {.size_max = 256 * kContentFrameBytes * 4,
                                           .segment_bytes = 64 * kContentFrameBytes,
                                           .free_bytes_min = 0,
                                           .section_bytes = 1024,
                                           .id_seed = store_seed});
  if (!store.ok()) {
    log_.Add(Cat("worker ", index_, " has no drive: ", std::string(store.status().message())));
    return nullptr;
  }
  return std::make_unique<kv::StoredBlocks>(*std::move(store), life_->arena,
                                            kv::StoredBlocksOptions{.fingerprint = kFingerprint});
}

void SimWorker::OpenTiers(uint64_t store_seed) {
  Life& life = *life_;
  std::unique_ptr<kv::StoredBlocks> drive = OpenDrive(store_seed);
  life.drive = drive.get();
  if (scenario_.cold_memory > 0) {
    auto memory = *kv::RamBlocks::Create(life.arena, kv::MakeCopyCodec(kContentFrameBytes),
                                         {.bytes_max = scenario_.cold_memory * kContentFrameBytes,
                                          .slice_bytes = kColdSliceBlocks * kContentFrameBytes});
    life.tiers = std::make_unique<kv::TierStack>(std::move(memory), std::move(drive), life.arena);
  } else {
    life.tiers = std::move(drive);
  }
  if (life.tiers == nullptr) return;
  life.defective_cold = std::make_unique<DefectiveColdBlocks>(*life.tiers, life.arena, dice_);
  life.cold = std::make_unique<CheckedColdBlocks>(*life.defective_cold, life.arena, registry_, forgotten_);
  life.admission = kv::MakeAdmissionPolicy(scenario_.admission, {});
  life.engine->SetColdBlocks(life.cold.get(), life.admission.get(), {.frame_bytes = kContentFrameBytes});
}

void SimWorker::Kill(bool power) {
  CheckMeters();
  CheckDrive();
  CountLife();
  drive_had_trouble_ = true;
  life_->dying = true;
  forgotten_.SetDying(true);
  drive_.faults.crash_after = drive_.operations();
  life_->executor.Fail(absl::AbortedError("the process is gone"), /*for_good=*/true);
  life_.reset();
  drive_.Crash(power);
  forgotten_.SetDying(false);
}

void SimWorker::CountLife() {
  const engine::EngineStats stats = life_->engine->Stats();
  totals_.steps += stats.steps;
  totals_.computed_tokens += stats.computed_tokens;
  totals_.generated_tokens += stats.generated_tokens;
  totals_.cached_tokens += stats.cached_tokens;
  totals_.preemptions += stats.preemptions;
  totals_.restored_blocks += stats.tiers.restored_blocks;
  totals_.stored_blocks += stats.tiers.admitted_blocks;
}

void SimWorker::CheckMeters() {
  const SimBook::Sums sums = life_->book.sums();
  const ContentExecutor::Totals& done = life_->executor.totals();
  if (sums.computed != done.tokens || sums.generated != done.sampled || sums.step_ns != done.step_ns) {
    log_.Report("meters", Cat("worker ", index_, ": meters say ", sums.computed, " tokens computed, ", sums.generated,
                              " sampled, ", sums.step_ns, " ns, the machine did ", done.tokens, ", ", done.sampled,
                              ", ", done.step_ns));
  }
}

/// A drive with which nothing was ever wrong gives back what was written.
void SimWorker::CheckDrive() {
  if (life_->drive == nullptr || drive_had_trouble_) return;
  const kv::TierFigures figures = life_->drive->Figures().front();
  if (figures.faults > 0 || figures.state != "writing") {
    log_.Report("drive", Cat("worker ", index_, ": ", figures.faults,
                             " faults on a drive with which nothing was wrong, ", "which is ", figures.state));
  }
}

void SimWorker::Receive(const SimRequest& request) {
  if (life_ == nullptr) return;
  const auto known = life_->jobs.find(request.id);
  if (known != life_->jobs.end() && !dice_.Is(Defect::kDoubledRequest)) return send_(known->second->answer);
  if (!life_->begun.insert(request.id).second) {
    log_.Report("requests", Cat("worker ", index_, " begins ", request.id, " twice"));
  }
  auto job = std::make_shared<Life::Job>();
  job->request = request;
  job->answer = {.id = request.id, .worker = index_};
  life_->jobs[request.id] = job;
  engine::GenerationRequest generation = *request.generation;
  if (dice_.Hits(Defect::kWrongSalt, 10)) generation.cache_namespace = Mix64(scenario_.seed ^ dice_.Below(2));
  if (dice_.Hits(Defect::kLeakedSequence, 20)) {
    const RequestId ghost{uint64_t{1} << 62 | ++life_->leaks};
    life_->memory.Begin(ghost, 0, generation.prompt);
    life_->memory.Reserve(ghost, 1);
  }
  job->engine_id = life_->engine->Submit(std::move(generation), [this, job](engine::GenerationEvent&& event) {
    if (life_ == nullptr || life_->dying) return;
    if (job->ended) return log_.Report("ends", Cat("request ", job->request.id, " goes on after its end"));
    job->answer.tokens.insert(job->answer.tokens.end(), event.token_ids.begin(), event.token_ids.end());
    if (!event.token_ids.empty() && dice_.Hits(Defect::kDoubledToken, 100)) {
      job->answer.tokens.push_back(event.token_ids.back());
    }
    if (event.finish == engine::FinishReason::kNone) return;
    job->ended = true;
    job->answer.finish = event.finish;
    job->answer.status = event.status;
    log_.Add(Cat("worker ", index_, " has done ", job->request.id));
    send_(job->answer);
  });
  life_->by_engine_id[job->engine_id] = job;
  log_.Add(Cat("worker ", index_, " takes ", request.id));
  send_(job->answer);
}

void SimWorker::Cancel(uint64_t id) {
  if (life_ == nullptr) return;
  std::shared_ptr<Life::Job>& job = life_->jobs[id];
  if (job == nullptr) {  // It may come later: it has ended before it begins.
    job = std::make_shared<Life::Job>();
    job->request.id = id;
    job->ended = job->cancelled = true;
    job->answer = {.id = id, .worker = index_, .finish = engine::FinishReason::kCancelled};
  }
  if (job->ended) return send_(job->answer);
  job->cancelled = true;
  if (!dice_.Is(Defect::kIgnoredCancel)) life_->engine->Cancel(job->engine_id);
}

/// What owners hold of the tiers adds up to what is in them. @param now  of the turn that is over
void SimWorker::CheckHoldings(TimeNs now) {
  Life& life = *life_;
  if (life.cold == nullptr || dice_.Is(Defect::kClockBack)) return;  // Two looks at that clock differ.
  if (life.held_since != kTimeNever) {
    life.held_byte_ns += static_cast<double>(life.held_bytes) * static_cast<double>(now - life.held_since);
  }
  life.held_since = now;
  life.held_bytes = life.drive != nullptr ? life.drive->store().index().live_bytes() : 0;
  if (scenario_.cold_memory > 0) life.held_bytes += life.tiers->Figures().front().bytes;
  uint64_t bytes = 0;
  double byte_ns = 0;
  for (const kv::TierHolding& holding : life.cold->Holdings()) {
    bytes += holding.bytes;
    byte_ns += holding.byte_ns;
  }
  if (bytes != life.held_bytes || std::abs(byte_ns - life.held_byte_ns) > 1e-9 * life.held_byte_ns) {
    log_.Report("meters", Cat("worker ", index_, ": owners hold ", bytes, " bytes of its tiers and have held ", byte_ns,
                              " byte ns, in which are ", life.held_bytes, " and were ", life.held_byte_ns));
  }
}

void SimWorker::Turn() {
  if (life_ == nullptr || log_.failed()) return;
  bool worked = false;
  const TimeNs now = life_->clock.Now();
  for (int turns = 0; life_->engine->RunOnce(); ++turns) {
    worked = true;
    life_->memory.CheckInvariants();
    if (life_->memory.counts().total() != scenario_.frames) {
      log_.Report("frames", Cat("worker ", index_, ": the counts of frames do not add up to ", scenario_.frames));
    }
    if (turns > kTurnsMax) log_.Report("progress", Cat("worker ", index_, " works without end at one instant"));
    if (log_.failed()) return;
  }
  CheckHoldings(now);
  if (!worked) return;
  const engine::EngineStats stats = life_->engine->Stats();
  log_.Digest(stats.steps);
  log_.Digest(stats.computed_tokens);
  CheckMeters();
}

TimeNs SimWorker::NextAt() const {
  if (life_ == nullptr) return kTimeNever;
  TimeNs next = kTimeNever;
  if (const auto done = life_->executor.NextCompletion()) next = *done + -clock_offset_ns_;
  const TimeNs due = life_->engine->NextDeadline();
  if (due != kTimeNever) next = std::min(next, std::max(due + -clock_offset_ns_, log_.now() + kPatienceNs));
  return next;
}

void SimWorker::Begin(const SimFault& fault) {
  kv::SimFaults& drive = drive_.faults;
  switch (fault.kind) {
    case SimFault::Kind::kCrash:
    case SimFault::Kind::kPowerLoss:
      if (life_ != nullptr) Kill(fault.kind == SimFault::Kind::kPowerLoss);
      break;
    case SimFault::Kind::kSlow:
      slowness_ = fault.amount;
      if (life_ != nullptr) life_->executor.SetSlowness(slowness_);
      break;
    case SimFault::Kind::kDrive:
      drive_had_trouble_ = true;
      forgotten_.Excuse();
      for (double* chance :
           {&drive.torn_write, &drive.misdirected_write, &drive.lost_write, &drive.flipped_bit, &drive.flipped_read,
            &drive.short_read, &drive.read_error, &drive.write_error, &drive.sync_error, &drive.name_error}) {
        *chance = fault.amount;
      }
      break;
    case SimFault::Kind::kDriveFull:
      drive_had_trouble_ = true;
      forgotten_.Excuse();
      drive.room_bytes = drive_.used_bytes();
      break;
    case SimFault::Kind::kBitRot:
      drive_had_trouble_ = true;
      forgotten_.Excuse();
      for (int i = 0; i < static_cast<int>(fault.amount); ++i) drive_.FlipSomewhere();
      break;
    case SimFault::Kind::kClockJump:
      clock_offset_ns_ += static_cast<int64_t>(fault.amount * 1e9);
      break;
    case SimFault::Kind::kStepFailure:
      if (life_ != nullptr) life_->executor.Fail(absl::DataLossError("no device memory"), /*for_good=*/false);
      break;
    case SimFault::Kind::kNoMeters:
      meters_full_ = true;
      break;
    case SimFault::Kind::kPartition:
    case SimFault::Kind::kLoss:
      break;
  }
}

void SimWorker::End(const SimFault& fault) {
  switch (fault.kind) {
    case SimFault::Kind::kCrash:
    case SimFault::Kind::kPowerLoss:
      if (life_ == nullptr) Start();
      break;
    case SimFault::Kind::kSlow:
      slowness_ = 1;
      if (life_ != nullptr) life_->executor.SetSlowness(1);
      break;
    case SimFault::Kind::kDrive: {
      const uint64_t room = drive_.faults.room_bytes;
      drive_.faults = {.room_bytes = room};
      break;
    }
    case SimFault::Kind::kDriveFull:
      drive_.faults.room_bytes = UINT64_MAX;
      break;
    case SimFault::Kind::kNoMeters:
      meters_full_ = false;
      break;
    default:
      break;
  }
}

void SimWorker::Heal() {
  drive_.faults = {};
  meters_full_ = false;
  slowness_ = 1;
  if (life_ == nullptr) Start();
  life_->executor.SetSlowness(1);
}

bool SimWorker::alive() const {
  return life_ != nullptr;
}

bool SimWorker::busy() const {
  if (life_ == nullptr) return false;
  const engine::EngineStats stats = life_->engine->Stats();
  const kv::FrameCounts counts = life_->memory.counts();
  return stats.running + stats.waiting + counts.loading + counts.storing > 0;
}

void SimWorker::CheckEnd() {
  if (life_ == nullptr || log_.failed()) return;
  CheckMeters();
  CheckDrive();
  kv::KvMemory& memory = life_->memory;
  const kv::FrameCounts counts = memory.counts();
  if (counts.referenced + counts.loading + counts.storing > 0) {
    return log_.Report("leaks",
                       Cat("worker ", index_, ": nobody is left, but ", counts.referenced, " frames are referenced, ",
                           counts.loading, " loading, ", counts.storing, " storing"));
  }
  memory.YieldPins(scenario_.frames, life_->clock.Now());
  // One sequence takes all there is, so that nothing stays cached.
  const RequestId all{UINT64_MAX >> 1};
  const std::vector<TokenId> text(size_t{scenario_.frames} * kv::kBlockTokens);
  memory.Begin(all, /*cache_namespace=*/UINT64_MAX, text);
  const bool fits = memory.Reserve(all, static_cast<uint32_t>(text.size()));
  memory.End(all);
  if (!fits || memory.counts().free != scenario_.frames) {
    log_.Report("leaks", Cat("worker ", index_, ": without caches ", memory.counts().free, " of ", scenario_.frames,
                             " frames are free"));
  }
  CountLife();
  life_->dying = true;
  life_.reset();
}

}  // namespace kvist::lab
