#include "lab/world.h"

#include <algorithm>
#include <memory>

#include "base/status.h"

namespace kvist::lab {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
/// After the last fault and the last question, everything ends within this.
constexpr int64_t kDrainNs = 600 * kSecondNs;

class World {
 public:
  World(const SimScenario& scenario, Defect defect)
      : scenario_(scenario),
        dice_(defect, scenario.seed),
        registry_(log_),
        network_(log_, scenario_),
        weather_(log_),
        router_(log_, scenario_, dice_, Wire()),
        clients_(log_, scenario_, router_, weather_),
        trouble_(scenario.workers, 0),
        reachable_since_(scenario.workers, TimeNs{0}) {
    for (uint32_t i = 0; i < scenario_.workers; ++i) {
      workers_.push_back(
          std::make_unique<SimWorker>(log_, scenario_, i, dice_, registry_, [this, i](const SimAnswer& answer) {
            network_.Send(i, [this, answer] {
              clients_.Heard(SimRouter::ClientId(answer));
              router_.Take(answer);
            });
          }));
    }
  }

  WorldResult Run() {
    const TimeNs end = log_.now() + static_cast<int64_t>(scenario_.seconds * 1e9);
    for (const SimFault& fault : scenario_.faults) {
      if (fault.at_s >= scenario_.seconds) continue;
      log_.At(TimeNs{static_cast<int64_t>(fault.at_s * 1e9)}, [this, fault, end] { Begin(fault, end); });
    }
    clients_.Start(end);
    Watch();
    RunUntil([&] { return log_.now() >= end; }, end);
    for (const auto& worker : workers_) worker->Heal();
    RunUntil([this] { return Quiet(); }, end + kDrainNs);
    if (!log_.failed()) clients_.CheckEnd();
    for (const auto& worker : workers_) worker->CheckEnd();
    return Result();
  }

 private:
  SimRouter::Wire Wire() {
    return {
        .request =
            [this](uint32_t worker, const SimRequest& request) {
              network_.Send(worker, [this, worker, request] { workers_[worker]->Receive(request); });
            },
        .cancel = [this](uint32_t worker,
                         uint64_t id) { network_.Send(worker, [this, worker, id] { workers_[worker]->Cancel(id); }); }};
  }

  template <class Done>
  void RunUntil(const Done& done, TimeNs limit) {
    while (!log_.failed() && !done()) {
      log_.RunDue();
      TimeNs next = limit;
      for (const auto& worker : workers_) {
        worker->Turn();
        next = std::min(next, worker->NextAt());
      }
      // A turn may have sent something for now.
      next = std::min(next, log_.NextEvent());
      if (log_.now() >= limit) return;
      log_.AdvanceTo(next);
    }
  }

  bool Quiet() const {
    return clients_.done() && std::ranges::none_of(workers_, [](const auto& worker) { return worker->busy(); });
  }

  /// Somebody must work on every request, as long as there is somebody.
  void Watch() {
    log_.After(kSecondNs, [this] {
      TimeNs since = kTimeNever;
      for (uint32_t i = 0; i < workers_.size(); ++i) {
        if (trouble_[i] == 0) since = std::min(since, reachable_since_[i]);
      }
      if (since != kTimeNever) clients_.CheckProgress(since);
      if (!clients_.done() || log_.now() < TimeNs{static_cast<int64_t>(scenario_.seconds * 1e9)}) Watch();
    });
  }

  /// The workers that a fault cuts off from the router.
  void Trouble(const SimFault& fault, int change) {
    const bool one = fault.kind == SimFault::Kind::kCrash || fault.kind == SimFault::Kind::kPowerLoss ||
                     fault.kind == SimFault::Kind::kPartition;
    for (uint32_t i = 0; i < scenario_.workers; ++i) {
      if (fault.kind != SimFault::Kind::kLoss && !(one && i == fault.worker)) continue;
      trouble_[i] += change;
      reachable_since_[i] = log_.now();
    }
  }

  void Begin(const SimFault& fault, TimeNs end) {
    log_.Add(Cat("fault: ", FaultName(fault.kind), fault.kind == SimFault::Kind::kLoss ? "" : " at worker ",
                 fault.kind == SimFault::Kind::kLoss ? "" : Cat(fault.worker)));
    weather_.Begin(fault.kind);
    Trouble(fault, +1);
    workers_[fault.worker]->Begin(fault);
    if (fault.kind == SimFault::Kind::kPartition) network_.Cut(fault.worker, +1);
    if (fault.kind == SimFault::Kind::kLoss) network_.Lose(fault.amount);
    const TimeNs over = log_.now() + static_cast<int64_t>(fault.for_s * 1e9);
    log_.At(std::min(over, end), [this, fault] {
      log_.Add(Cat("over: ", FaultName(fault.kind)));
      weather_.End(fault.kind);
      Trouble(fault, -1);
      workers_[fault.worker]->End(fault);
      if (fault.kind == SimFault::Kind::kPartition) network_.Cut(fault.worker, -1);
      if (fault.kind == SimFault::Kind::kLoss) network_.Lose(-fault.amount);
    });
  }

  WorldResult Result() const {
    WorldResult result{.violation = log_.violation(),
                       .last_lines = {log_.lines().begin(), log_.lines().end()},
                       .digest = log_.digest(),
                       .seconds = Seconds(log_.now().value),
                       .clients = clients_.totals()};
    for (const auto& worker : workers_) {
      const WorkerTotals& totals = worker->totals();
      result.workers.steps += totals.steps;
      result.workers.computed_tokens += totals.computed_tokens;
      result.workers.generated_tokens += totals.generated_tokens;
      result.workers.cached_tokens += totals.cached_tokens;
      result.workers.preemptions += totals.preemptions;
      result.workers.restored_blocks += totals.restored_blocks;
      result.workers.stored_blocks += totals.stored_blocks;
      result.workers.lives += totals.lives;
    }
    return result;
  }

  const SimScenario scenario_;
  WorldLog log_;
  DefectDice dice_;
  BlockRegistry registry_;
  SimNetwork network_;
  Weather weather_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
  SimRouter router_;
  SimClients clients_;
  std::vector<int> trouble_;
  std::vector<TimeNs> reachable_since_;
};

}  // namespace

WorldResult RunWorld(const SimScenario& scenario, Defect defect) {
  return World(scenario, defect).Run();
}

}  // namespace kvist::lab
