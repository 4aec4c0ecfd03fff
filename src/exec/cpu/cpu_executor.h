#pragma once

/// @file
/// The executor for this machine's processor: loads a model's weights once, then runs step plans on a team of threads.
/// Results have the same bits for every number of threads, batch and chunking (kernels/kernel_table.h says why).

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "exec/cpu/program.h"
#include "exec/cpu/step_batch.h"
#include "exec/cpu/weights.h"
#include "kernels/dispatch.h"
#include "kernels/sampling.h"
#include "kv/frame_arena.h"
#include "kv/span_table.h"
#include "model/model.h"
#include "platform/thread_pool.h"
#include "step/executor.h"

namespace kvist::exec {

struct CpuExecutorOptions {
  uint32_t threads = 1;
  kernels::Isa isa = kernels::Isa::kReference;
  uint32_t tokens_per_step_max = 512;
  uint32_t slices_per_step_max = 64;
  uint32_t context_tokens_max = 0;  ///< Longest context; also chooses between a model's rotary frequencies.
  uint32_t frames_count = 0;        ///< Blocks of KV memory.
  KvType kv_type = KvType::kF16;    ///< How keys and values are kept.
  bool share_segments = true;       ///< Read what sequences share of their views once for all; off for measuring.
  LoadOptions load;
};

class CpuExecutor final : public step::Executor {
 public:
  /// @param spans  read inside Submit; must outlive the executor.
  static absl::StatusOr<std::unique_ptr<CpuExecutor>> Create(std::shared_ptr<const model::Model> model,
                                                             const CpuExecutorOptions& options,
                                                             const kv::SpanTable& spans, const Clock& clock);
  ~CpuExecutor() override;

  std::string_view Name() const override { return name_; }
  const step::ExecutorLimits& Limits() const override { return limits_; }
  absl::Status Submit(step::StepPlan&& plan) override;
  absl::StatusOr<std::optional<step::StepResult>> Poll() override;
  std::optional<TimeNs> NextCompletion() const override { return std::nullopt; }
  void Recycle(step::StepResult&& result) override { spare_ = std::move(result); }
  void SetWake(std::function<void()> wake) override;

  const Weights& weights() const { return weights_; }
  /// The bytes of the frames, for tiers that read into them and write from them.
  const kv::FrameArena& arena() const { return arena_; }
  double load_s() const { return load_s_; }  ///< What loading the weights took.

 private:
  enum class State : int { kIdle, kSubmitted, kDone, kStop };  // As wide as what the kernel waits on.

  CpuExecutor(std::shared_ptr<const model::Model> model, const CpuExecutorOptions& options, const kv::SpanTable& spans,
              const Clock& clock);

  void RunnerLoop();
  void RunStep();
  void CopyFrames(uint32_t part, uint32_t parts) const;
  void FinishOutput(const OutputRow& output, const float* logits, uint32_t worker);
  void Score(const OutputRow& output, std::span<const float> logits, uint32_t worker);
  void Sample(const OutputRow& output, std::span<const float> logits, uint32_t worker);

  struct WorkerScratch {
    kernels::SamplingScratch sampling;
    std::vector<kernels::TokenUse> uses;
    std::vector<kernels::LogitBias> biases;
    std::vector<kernels::TokenLogprob> top;

    /// Room for everything that sampling may ask of a vocabulary. Which worker samples is a matter of chance, so none
    /// can be warmed by use; what is not used costs addresses only.
    void Reserve(uint32_t vocab_size);
  };

  std::shared_ptr<const model::Model> model_;
  const CpuExecutorOptions options_;
  const kv::SpanTable& spans_;
  const Clock& clock_;
  std::string name_;
  step::ExecutorLimits limits_;
  ThreadPool pool_;
  JobSequence jobs_;
  Weights weights_;
  kv::FrameArena arena_;
  Program program_;
  double load_s_ = 0;
  uint64_t step_bytes_ = 0;  ///< Weights that every step reads: all but those of experts.
  std::vector<WorkerScratch> scratch_;
  std::mutex
      wake_mutex_;  ///< A result may have been taken before its wake is called: that must not outlive the caller.
  std::function<void()> wake_;

  // Handed between the caller and the runner: whoever the state names owns batch_ and result_.
  std::atomic<State> state_{State::kIdle};
  StepBatch batch_;
  step::StepResult result_;
  step::StepResult spare_;  ///< Handed back; of the caller.
  std::thread runner_;
};

/// Pages of a model's KV blocks.
kv::PageLayout LayoutOf(const model::ModelSpec& spec, KvType kv_type);

}  // namespace kvist::exec
