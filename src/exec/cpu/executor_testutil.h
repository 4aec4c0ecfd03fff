#pragma once

/// @file
/// Runs prompts through a CPU executor for tests: any chunking, several sequences at once, all logits.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "exec/cpu/cpu_executor.h"
#include "kv/kv_memory.h"

namespace kvist::exec {

/// The value; ends the program with the error where there is none.
template <class T>
T ValueOrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::abort();
  }
  return *std::move(value);
}

/// An executor with its memory, for one model. Aborts on errors: tests want the place.
class TestExecutor {
 public:
  struct Options {
    uint32_t threads = 1;
    kernels::Isa isa = kernels::BestIsa();
    uint32_t tokens_per_step_max = 512;
    uint32_t frames_count = 256;
    uint32_t context_tokens = 0;  ///< 0 = the model's.
    KvType kv_type = KvType::kF16;
    bool reuse = false;
    LoadOptions load;
  };
  TestExecutor(const std::string& path, const Options& options);

  /// One sequence of a batch: how many tokens go into each step. The chunks of all sequences run side by side.
  struct Run {
    std::vector<TokenId> tokens;
    uint32_t chunk = UINT32_MAX;
    uint32_t skip_steps = 0;  ///< Joins the batch so many steps later.
  };

  /// Logits of every position of every sequence: [runs][tokens * vocab].
  std::vector<std::vector<float>> Logits(const std::vector<Run>& runs);

  /// Log probability of tokens[1], tokens[2], ... after those before, computed in chunks.
  std::vector<float> Scores(const std::vector<TokenId>& tokens, uint32_t chunk);

  /// Submits, waits, returns.
  step::StepResult Execute(step::StepPlan plan);

  CpuExecutor& executor() { return *executor_; }
  kv::KvMemory& memory() { return memory_; }
  uint32_t vocab() const { return executor_->Limits().vocab_size; }

 private:
  TestExecutor(std::shared_ptr<const model::Model> model, const Options& options);

  RealClock clock_;
  kv::KvMemory memory_;
  std::unique_ptr<CpuExecutor> executor_;
  uint64_t next_id_ = 1;
};

}  // namespace kvist::exec
