#pragma once

/// @file
/// One worker of a simulated world: the real engine, KV memory, scheduler and block store on a machine that computes
/// hashes, with a drive that outlives its process. It knows requests by the router's numbers: one that comes again is
/// not begun again, its answer is told again. It looks after its own frames, meters and clock, and reports what does
/// not add up. Threads: one.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "kv/tier/sim_disk.h"
#include "kv/tier/stored_blocks.h"
#include "lab/sim_scenario.h"
#include "lab/world_content.h"
#include "lab/world_defect.h"
#include "lab/world_drive.h"
#include "lab/world_log.h"

namespace kvist::lab {

struct SimRequest {
  uint64_t id = 0;
  std::shared_ptr<const engine::GenerationRequest> generation;
};

/// What a worker says about a request.
struct SimAnswer {
  uint64_t id = 0;
  uint32_t worker = 0;
  engine::FinishReason finish = engine::FinishReason::kNone;  ///< kNone = it is being worked on.
  absl::Status status;                                        ///< Not OK only with kError.
  std::vector<TokenId> tokens;
};

/// Totals of all lives.
struct WorkerTotals {
  uint64_t steps = 0, computed_tokens = 0, generated_tokens = 0, cached_tokens = 0;
  uint64_t preemptions = 0, restored_blocks = 0, stored_blocks = 0, lives = 0;
};

class SimWorker {
 public:
  /// References outlive it. @param send  to the router
  SimWorker(WorldLog& log, const SimScenario& scenario, uint32_t index, DefectDice& dice, BlockRegistry& registry,
            std::function<void(const SimAnswer&)> send);
  ~SimWorker();

  void Receive(const SimRequest& request);
  void Cancel(uint64_t id);

  /// Runs the engine until nothing more happens at this instant.
  void Turn();
  /// When Turn has something to do, if no message comes; kTimeNever = never.
  TimeNs NextAt() const;

  void Begin(const SimFault& fault);
  void End(const SimFault& fault);
  /// All faults are over.
  void Heal();

  bool alive() const;
  bool busy() const;
  /// Nobody is left: nothing may be held, and without caches everything is free. Ends the process.
  void CheckEnd();
  const WorkerTotals& totals() const { return totals_; }

 private:
  struct Life;
  void Start();
  bool HasTiers() const;
  std::unique_ptr<kv::StoredBlocks> OpenDrive(uint64_t store_seed);
  void OpenTiers(uint64_t store_seed);
  void Kill(bool power);
  void CountLife();
  void CheckMeters();
  void CheckDrive();
  void CheckHoldings(TimeNs now);

  WorldLog& log_;
  const SimScenario& scenario_;
  const uint32_t index_;
  DefectDice& dice_;
  BlockRegistry& registry_;
  const std::function<void(const SimAnswer&)> send_;
  Prng prng_;
  kv::SimDrive drive_;
  ForgottenBlocks forgotten_;
  ContentTokenizer tokenizer_;
  int64_t clock_offset_ns_ = 0;
  double slowness_ = 1;
  bool meters_full_ = false, drive_had_trouble_ = false;
  WorkerTotals totals_;
  std::unique_ptr<Life> life_;  ///< Null = the process is gone.
};

}  // namespace kvist::lab
