#pragma once

/// @file
/// Assembles a running engine from a model file: opens and packs the model, sizes KV memory by what is free, and wires
/// executor, memory, policy, tokenizer and chat template together. Used by the commands, the quality tools and tests.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "cost/step_model.h"
#include "engine/engine.h"
#include "exec/cpu/cpu_executor.h"
#include "exec/emulated/emulated_executor.h"
#include "kv/kv_memory.h"
#include "model/model.h"
#include "modelfile/chat_template.h"
#include "modelfile/tokenizer.h"
#include "runtime/tiers.h"
#include "sched/policy.h"

namespace kvist::runtime {

/// A device that takes the place of this machine: its time is modelled. The model file gives tokenizer and chat
/// template, and its tokens are synthetic; or the model runs as well, and gives them.
struct Emulation {
  cost::StepModel model;
  std::string model_id;             ///< "" = the name of the model's shape.
  uint32_t blocks = 0;              ///< Of KV memory.
  uint32_t output_tokens_mean = 0;  ///< Synthetic answers end after so many tokens, on average; 0 = never.
  bool runs_model = false;          ///< Tokens, logits and states are the model file's.
  exec::EmulationNotices notices;
};

struct RuntimeOptions {
  std::string model_path;
  uint32_t threads = 0;             ///< 0 = one per core this process may use.
  std::string isa;                  ///< "" = the fastest this machine has.
  uint64_t kv_memory_bytes = 0;     ///< 0 = sized from free memory.
  KvType kv_type = KvType::kF16;    ///< How keys and values are kept.
  uint32_t context_tokens_max = 0;  ///< 0 = the model's trained context, or what KV memory holds if that is less.
  uint32_t tokens_per_step_max = 512;
  uint32_t chunk_tokens_max = 512;
  uint32_t requests_max = 64;  ///< Running at once.
  uint32_t waiting_max = 1024;
  std::string policy{sched::kDefaultPolicy};
  uint32_t prefills_max = 16;  ///< Prompts that are read in one step, where the policy bounds it.
  /// Wished times from arrival to first token, and from token to token; 0 = none, as the policy sees fit.
  int64_t first_token_ns = 0, next_token_ns = 0;
  bool reuse = true;           ///< Keep finished KV blocks for later prompts.
  double pin_share = 0.5;      ///< Of KV memory; so much can be pinned.
  bool share_segments = true;  ///< Sequences of a step read context that they share together; off for measuring.
  /// Folder for packed weights (exec/cpu/packed_cache.h); "" = they are packed at every start.
  std::string packed_cache;
  uint64_t weight_memory_bytes = 0;    ///< Packed weights of more stay in that folder and are mapped; 0 = what is free.
  TierOptions tiers;                   ///< Below hot memory. Needs `reuse`.
  std::optional<Emulation> emulation;  ///< Has no tiers.
  exec::LoadProgress progress;
  exec::CacheNotice cache_notice;
};

/// Seconds that the parts of a start took; text and weights are read at the same time.
struct StartTimes {
  double open_s = 0;     ///< The model file: metadata and graph.
  double text_s = 0;     ///< Tokenizer and chat template.
  double weights_s = 0;  ///< exec::LoadReport says from where.
  double total_s = 0;
};

/// Everything a served model needs. Members are destroyed in reverse order.
struct Runtime {
  RealClock clock;
  std::shared_ptr<const model::Model> model;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;  ///< Absent when the file has none.
  absl::Status chat_template_status;          ///< Why it is absent.
  std::unique_ptr<kv::KvMemory> memory;
  std::unique_ptr<step::Executor> executor;
  exec::CpuExecutor* cpu = nullptr;  ///< The same, or what runs a model for it; null = nothing is computed.
  const exec::EmulatedExecutor* device = nullptr;  ///< The same, if it is an emulated device.
  OpenedTiers tiers;                               ///< Empty without them.
  std::jthread populating;                         ///< Of KV memory, which tiers read into.
  std::unique_ptr<sched::SchedulerPolicy> policy;
  std::unique_ptr<engine::Engine> engine;  ///< Not started.
  std::string model_id;                    ///< File name without folder and ending.
  uint64_t kv_bytes = 0;
  KvType kv_type = KvType::kF16;  ///< How keys and values are kept. Of an emulated device, the name alone tells it.
  std::string_view kv_type_name;
  /// Changes with the program, the model file and what else may change the bits of keys, values and logits.
  uint64_t fingerprint = 0;
  uint32_t threads = 0;
  StartTimes times;
};

/// $XDG_CACHE_HOME/kvist/packed, else ~/.cache/kvist/packed; empty when neither variable is set.
std::string DefaultPackedCache();

/// Errors: those of opening and building the model; InvalidArgument for options that do not fit, with the numbers.
absl::StatusOr<std::unique_ptr<Runtime>> Start(const RuntimeOptions& options);

}  // namespace kvist::runtime
