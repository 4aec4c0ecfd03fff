#pragma once

/// @file
/// An engine on the small model, driven by hand: what tests of the engine share. Threads: none shared.

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "engine/engine.h"
#include "engine/request_trace.h"
#include "exec/cpu/cpu_executor.h"
#include "kv/tier/tier_stack.h"
#include "model/model.h"

namespace kvist::engine {

inline constexpr char kModelPath[] = KVIST_SOURCE_DIR "/models/default-q8_0.gguf";

struct Answer {
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<TokenEvent> events;
  FinishReason finish = FinishReason::kNone;
  absl::Status status;
  Usage usage;
  std::shared_ptr<const RequestTrace> trace;
  std::vector<float> range_mass;
  std::vector<TokenEvent> prompt_logprobs;
};

/// An engine driven by hand: one turn at a time, on this thread.
class Bench {
 public:
  struct Options {
    uint32_t frames = 512;
    std::string_view policy = "chunked";
    uint32_t chunk = 512;
    uint32_t tokens_per_step = 512;
    uint32_t threads = 2;
    bool reuse = true;
    KvType kv_type = KvType::kF16;
    double pin_share = 0.5;
    const Clock* clock = nullptr;  ///< nullptr = the real one.
    EngineOptions engine;
    std::unique_ptr<Disk> disk = nullptr;             ///< Under hot memory; nullptr = nothing is.
    uint32_t cold_blocks = 0;                         ///< Of cold memory, between the two.
    std::string_view codec = kv::kDefaultFrameCodec;  ///< Of that.
    std::string_view admission = "through";
    double read_bytes_per_s = 1e9;  ///< Of the disk, as the engine believes.
    uint64_t fingerprint = 7;
  };
  explicit Bench(Options options)
      : clock_(options.clock != nullptr ? *options.clock : real_clock_),
        model_(*model::LoadModel(kModelPath)),
        tokenizer_(*Tokenizer::FromGguf(*model_->file)),
        memory_({.frames_count = options.frames,
                 .layout = exec::LayoutOf(model_->spec, options.kv_type),
                 .fingerprint = options.fingerprint,
                 .reuse = options.reuse,
                 .pin_share = options.pin_share,
                 .uses_remembered = options.disk != nullptr || options.cold_blocks > 0 ? 4 * options.frames : 0}),
        executor_(*exec::CpuExecutor::Create(model_,
                                             {.threads = options.threads,
                                              .isa = kernels::BestIsa(),
                                              .tokens_per_step_max = options.tokens_per_step,
                                              .slices_per_step_max = 16,
                                              .context_tokens_max = 4096,
                                              .frames_count = options.frames,
                                              .kv_type = options.kv_type},
                                             memory_.spans(), clock_)),
        policy_(sched::FindPolicy(options.policy)->make({.chunk_tokens_max = options.chunk})),
        engine_(*executor_, memory_, *policy_, *tokenizer_, clock_, options.engine) {
    OpenTiers(options);
  }

  RequestId Submit(GenerationRequest request) {
    auto answer = std::make_shared<Answer>();
    RequestId id = engine_.Submit(std::move(request), [answer](GenerationEvent&& event) {
      EXPECT_EQ(answer->finish, FinishReason::kNone) << "an event after the last one";
      answer->text += event.text;
      answer->tokens.insert(answer->tokens.end(), event.token_ids.begin(), event.token_ids.end());
      for (TokenEvent& token : event.tokens) answer->events.push_back(std::move(token));
      answer->finish = event.finish;
      answer->status = event.status;
      answer->usage = event.usage;
      answer->trace = event.trace;
      if (!event.prompt_logprobs.empty()) {
        EXPECT_TRUE(answer->prompt_logprobs.empty()) << "told twice";
        answer->prompt_logprobs = std::move(event.prompt_logprobs);
      }
      if (event.range_mass.empty()) return;
      EXPECT_TRUE(answer->range_mass.empty()) << "measured twice";
      answer->range_mass = std::move(event.range_mass);
    });
    answers_[id.value] = answer;
    return id;
  }

  void Turn() {
    engine_.RunOnce();
    memory_.CheckInvariants();
  }

  /// Runs until nobody is left.
  void Finish() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(3);  // Sanitizers are slow.
    while (std::chrono::steady_clock::now() < end) {
      if (engine_.RunOnce()) memory_.CheckInvariants();
      EngineStats stats = engine_.Stats();
      if (stats.running == 0 && stats.waiting == 0 && !engine_.RunOnce() && Settled()) return;
      std::this_thread::yield();
    }
    FAIL() << "the engine does not come to an end";
  }

  const Answer& Of(RequestId id) { return *answers_.at(id.value); }
  Answer Solo(GenerationRequest request) {
    RequestId id = Submit(std::move(request));
    Finish();
    return Of(id);
  }

  std::vector<TokenId> Encode(std::string_view text) { return tokenizer_->Encode(text, {.add_special = true}); }
  GenerationRequest Greedy(std::string_view text, uint32_t max_tokens = 40) {
    GenerationRequest request;
    request.prompt = Encode(text);
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    return request;
  }
  Engine& engine() { return engine_; }
  kv::KvMemory& memory() { return memory_; }
  kv::StoredBlocks& drive() { return *drive_; }
  void ExpectNoLeak() {
    memory_.CheckInvariants();
    EXPECT_EQ(memory_.counts().referenced, 0u);
    EXPECT_EQ(memory_.counts().loading, 0u);
  }

 private:
  bool Settled() const { return memory_.counts().loading + memory_.counts().storing == 0; }
  /// @return null without a drive, or with one that fails at once
  std::unique_ptr<kv::StoredBlocks> OpenDrive(Options& options) {
    if (options.disk == nullptr) return nullptr;
    const uint64_t frame_bytes = executor_->arena().frame_bytes();
    absl::StatusOr<std::unique_ptr<kv::BlockStore>> store = kv::BlockStore::Open(
        std::move(options.disk), {.size_max = 256 * frame_bytes + (1 << 20), .free_bytes_min = 0, .id_seed = 9});
    if (!store.ok()) return nullptr;
    return std::make_unique<kv::StoredBlocks>(*std::move(store), executor_->arena(),
                                              kv::StoredBlocksOptions{.fingerprint = options.fingerprint,
                                                                      .codec = options.kv_type,
                                                                      .read_bytes_per_s = options.read_bytes_per_s});
  }
  void OpenTiers(Options& options) {
    std::unique_ptr<kv::StoredBlocks> drive = OpenDrive(options);
    drive_ = drive.get();
    const kv::FrameArena& arena = executor_->arena();
    if (options.cold_blocks > 0) {
      auto codec = *kv::MakeFrameCodec(options.codec, exec::LayoutOf(model_->spec, options.kv_type));
      const uint64_t bytes = options.cold_blocks * codec->encoded_bytes();
      tier_ = std::make_unique<kv::TierStack>(*kv::RamBlocks::Create(arena, std::move(codec), {.bytes_max = bytes}),
                                              std::move(drive), arena);
    } else {
      tier_ = std::move(drive);
    }
    if (tier_ == nullptr) return;
    admission_ = kv::MakeAdmissionPolicy(options.admission, {});
    engine_.SetColdBlocks(tier_.get(), admission_.get(), {.frame_bytes = arena.frame_bytes()});
  }

  RealClock real_clock_;
  const Clock& clock_;
  std::shared_ptr<const model::Model> model_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  kv::KvMemory memory_;
  std::unique_ptr<exec::CpuExecutor> executor_;
  std::unique_ptr<sched::SchedulerPolicy> policy_;
  std::unique_ptr<kv::ColdBlocks> tier_;
  kv::StoredBlocks* drive_ = nullptr;  ///< Of `tier_`.
  std::unique_ptr<kv::AdmissionPolicy> admission_;
  Engine engine_;
  std::map<uint64_t, std::shared_ptr<Answer>> answers_;
};

inline constexpr std::string_view kStory =
    "Once upon a time, a kind boy named Ben lived near the museum. Every day, he went to the";
inline constexpr std::string_view kOther =
    "The purple key opens the shiny suitcase. Use the orange key for the small trunk. Then";

/// Random words, answered by the likeliest ones, as many as asked for.
inline GenerationRequest Greedy(uint32_t prompt_tokens, uint64_t seed, uint32_t max_tokens = 6) {
  GenerationRequest request;
  Prng prng(seed);
  for (uint32_t i = 0; i < prompt_tokens; ++i) {
    request.prompt.push_back(TokenId{static_cast<uint32_t>(10 + prng.Below(800))});
  }
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  return request;
}

}  // namespace kvist::engine
