#pragma once

/// @file
/// A server whose model is a fake: it answers every prompt with the same words for ever, step by step, and only while
/// its gate is open. Tests of HTTP and of timing use it; the real model is for tests of what comes out. The tokenizer
/// is the small model's.

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "kv/kv_memory.h"
#include "modelfile/gguf.h"
#include "modelfile/tokenizer.h"
#include "sched/policy.h"
#include "serve/server.h"
#include "step/executor.h"

namespace kvist::serve {

/// "Samples" the tokens of a text over and over, by position. Threads as step::Executor; Hold and Release from any.
class FakeExecutor final : public step::Executor {
 public:
  /// @param step_time  of each step, and for each token in view `view_token_time`
  FakeExecutor(std::vector<TokenId> text, const step::ExecutorLimits& limits, std::chrono::milliseconds step_time,
               std::chrono::nanoseconds view_token_time, const Clock& clock);

  void Hold() { SetGate(false); }  ///< Steps that finish from now on are kept back.
  void Release() { SetGate(true); }
  /// The step that is or comes next under way is lost.
  void Fail(absl::Status status);
  uint64_t steps_begun() const { return steps_begun_.load(); }

  std::string_view Name() const override { return "fake"; }
  const step::ExecutorLimits& Limits() const override { return limits_; }
  absl::Status Submit(step::StepPlan&& plan) override;
  absl::StatusOr<std::optional<step::StepResult>> Poll() override;
  std::optional<TimeNs> NextCompletion() const override { return std::nullopt; }
  void SetWake(std::function<void()> wake) override { wake_ = std::move(wake); }

 private:
  void SetGate(bool open);

  const std::vector<TokenId> text_;
  step::ExecutorLimits limits_;
  const std::chrono::milliseconds step_time_;
  const std::chrono::nanoseconds view_token_time_;
  const Clock& clock_;
  std::function<void()> wake_;
  std::atomic<uint64_t> steps_begun_{0};
  std::mutex mutex_;  ///< Guards the rest.
  bool open_ = true;
  absl::Status failure_;
  std::optional<step::StepResult> result_;
};

/// What the fake model says, again and again.
inline constexpr std::string_view kFakeText = "The wind was soft that day. ";

/// A Server on a thread of its own.
class RunningServer {
 public:
  RunningServer(ServerOptions options, ServedModel model, engine::Engine& engine, const Clock& clock);
  ~RunningServer();  ///< Stops, failing what is open.

  uint16_t port() const { return server_->port(); }
  Server& server() { return *server_; }
  void Join();  ///< After a RequestStop.

 private:
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

struct FakeWorldOptions {
  ServerOptions server;  ///< The port is chosen freely.
  uint32_t waiting_max = 1024, requests_max = 8, context_tokens_max = 8192;
  const Clock* clock = nullptr;  ///< nullptr = the real one.
  std::string model_path;
  std::chrono::milliseconds step_time{1};       ///< An endless answer lasts for seconds.
  std::chrono::nanoseconds view_token_time{0};  ///< More of it for each token in view.
  bool emulated = false;                        ///< What ServedModel::is_emulated says.
  std::string text{kFakeText};                  ///< What the model says, again and again.
};

/// Members are destroyed in reverse order.
struct FakeWorld {
  explicit FakeWorld(const FakeWorldOptions& options);
  ~FakeWorld();  ///< Opens the gate, fails what is open, stops.

  RealClock real_clock;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<FakeExecutor> executor;
  std::unique_ptr<kv::KvMemory> memory;
  std::unique_ptr<sched::SchedulerPolicy> policy;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<RunningServer> server;

  uint16_t port() const { return server->port(); }

  /// Waits until the engine's counters fit, at most 20 s.
  template <class Condition>
  bool WaitForStats(Condition condition) {
    for (int i = 0; i < 4000; ++i) {
      if (condition(engine->Stats())) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
};

}  // namespace kvist::serve
