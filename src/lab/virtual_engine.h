#pragma once

/// @file
/// An engine in virtual time, on a machine that is nothing but prices or on another one: what replays share. Threads:
/// none shared.

#include <algorithm>
#include <functional>
#include <memory>
#include <string_view>

#include "base/check.h"
#include "engine/engine.h"
#include "kv/kv_memory.h"
#include "kv/tier/admission.h"
#include "lab/host_tier.h"
#include "lab/virtual_executor.h"
#include "modelfile/tokenizer.h"
#include "sched/policy.h"

namespace kvist::lab {

/// @param letter  a token to sample
using MakeExecutor =
    std::function<std::unique_ptr<step::Executor>(const step::ExecutorLimits&, TokenId letter, const Clock&)>;

struct VirtualEngineOptions {
  std::string_view policy = sched::kDefaultPolicy;
  sched::PolicyOptions policy_options;
  engine::EngineOptions engine;
  VirtualMachine machine;
  MakeExecutor make_executor;  ///< Absent: `machine`.
  uint32_t blocks = 1 << 14;
  uint32_t requests_max = 16, tokens_per_step_max = 512;
  uint32_t buckets = kv::FramePool::kDefaultBuckets;  ///< Of the pool; 1 counts fastest, and one thread needs no more.
  bool reuse = true;
  HostTier* host = nullptr;  ///< Memory below, in the same virtual time; outlives the engine.
};

/// To be run to its end, Advance(INT64_MAX) = false, before it goes.
class VirtualEngine {
 public:
  /// REQUIRES: the policy is known.
  VirtualEngine(const Tokenizer& tokenizer, VirtualEngineOptions options) : host_(options.host) {
    const std::vector<TokenId> letter = tokenizer.Encode("a", {.add_special = false});
    const sched::PolicyEntry* policy = sched::FindPolicy(options.policy);
    KVIST_CHECK(policy != nullptr && !letter.empty());
    options.machine.token = letter.front();
    options.engine.waiting_max = UINT32_MAX;
    memory_ = std::make_unique<kv::KvMemory>(
        kv::KvMemoryOptions{.frames_count = options.blocks,
                            .reuse = options.reuse,
                            .buckets = options.buckets,
                            .uses_remembered = options.host != nullptr ? 4 * options.blocks : 0});
    const step::ExecutorLimits limits{.tokens_per_step_max = options.tokens_per_step_max,
                                      .slices_per_step_max = options.requests_max,
                                      .block_tokens = kv::kBlockTokens,
                                      .vocab_size = tokenizer.vocab_size(),
                                      .context_tokens_max = kContextMax};
    executor_ = options.make_executor ? options.make_executor(limits, letter.front(), clock_)
                                      : std::make_unique<VirtualExecutor>(limits, options.machine, clock_);
    policy_ = policy->make(options.policy_options);
    engine_ = std::make_unique<engine::Engine>(*executor_, *memory_, *policy_, tokenizer, clock_, options.engine);
    if (host_ != nullptr) engine_->SetColdBlocks(host_, &admission_, {.frame_bytes = host_->block_bytes()});
  }

  engine::Engine& engine() { return *engine_; }
  int64_t now_ns() const { return clock_.Now().value; }

  /// Runs until nothing more happens at this instant, then goes to the next at which something does.
  /// @param next_ns  when the caller has something to do; INT64_MAX = never
  /// @return false when there is no next instant.
  bool Advance(int64_t next_ns) {
    while (engine_->RunOnce()) {
    }
    if (const auto done = executor_->NextCompletion()) next_ns = std::min(next_ns, done->value);
    if (host_ != nullptr) next_ns = std::min({next_ns, host_->NextDoneNs(), engine_->NextDeadline().value});
    if (next_ns == INT64_MAX) return false;
    clock_.AdvanceTo(TimeNs{std::max(next_ns, now_ns())});
    return true;
  }

 private:
  static constexpr uint32_t kContextMax = 1u << 20;

  VirtualClock clock_;
  HostTier* const host_;
  kv::AdmitAll admission_;
  std::unique_ptr<kv::KvMemory> memory_;
  std::unique_ptr<step::Executor> executor_;
  std::unique_ptr<sched::SchedulerPolicy> policy_;
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace kvist::lab
