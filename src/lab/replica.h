#pragma once

/// @file
/// One engine on an emulated device in virtual time, as a router sees it: how many requests are under way. Each token
/// of a request takes a step, and no step takes less than a floor: until a request can have had all of its tokens it is
/// under way, whether or not the replica has been advanced so far. Many replicas that go on by many steps at a time,
/// not by one each in turn, stay in the processor's caches. Threads: none shared.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "exec/emulated/emulated_executor.h"
#include "lab/virtual_engine.h"

namespace kvist::lab {

class Replica {
 public:
  using MakeDevice = std::function<std::unique_ptr<exec::EmulatedExecutor>(const step::ExecutorLimits& limits,
                                                                           TokenId letter, const Clock& clock)>;

  /// @param step_floor_ns  no step takes less
  /// @param host  of its own; nullopt = none
  Replica(const Tokenizer& tokenizer, VirtualEngineOptions options, const MakeDevice& make_device,
          int64_t step_floor_ns, const std::optional<HostTierOptions>& host = {})
      : step_floor_ns_(step_floor_ns),
        host_(host ? std::make_unique<HostTier>(*host) : nullptr),
        world_(tokenizer, OnDevice(std::move(options), make_device)) {}
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  engine::Engine& engine() { return world_.engine(); }
  const exec::EmulatedExecutor& executor() const { return *executor_; }
  const HostTier* host() const { return host_.get(); }  ///< May be null.
  int64_t now_ns() const { return world_.now_ns(); }

  /// At the instant that it was advanced to. REQUIRES: the request has neither grammar nor stop strings, and its output
  /// does not end by itself.
  void Submit(engine::GenerationRequest&& request, engine::EventSink sink) {
    const uint64_t context = world_.engine().context_tokens_max(), prompt = request.prompt.size();
    const uint64_t output = prompt < context ? std::min<uint64_t>(request.max_tokens, context - prompt) : 0;
    const auto entry = tokens_left_.insert(tokens_left_.end(), output);
    world_.engine().Submit(std::move(request),
                           [this, entry, output, sink = std::move(sink)](engine::GenerationEvent&& event) {
                             *entry = output - std::min<uint64_t>(output, event.usage.output_tokens);
                             if (event.finish != engine::FinishReason::kNone) tokens_left_.erase(entry);
                             sink(std::move(event));
                           });
    Foresee();
  }

  /// Lets happen what does before an instant; INT64_MAX = all.
  void AdvanceTo(int64_t ns) {
    while (world_.now_ns() < ns && world_.Advance(ns)) {
    }
    Foresee();
  }

  /// Requests that had not ended when it was last advanced.
  size_t UnderWay() const { return tokens_left_.size(); }
  /// Of these, those that have not ended by what happens before another instant, whatever that is. All of them = it is
  /// known without going there.
  size_t SurelyUnderWay(int64_t ns) const {
    return static_cast<size_t>(may_end_ns_.end() - std::ranges::lower_bound(may_end_ns_, ns));
  }

 private:
  VirtualEngineOptions OnDevice(VirtualEngineOptions options, const MakeDevice& make_device) {
    options.make_executor = [this, make_device](const step::ExecutorLimits& limits, TokenId letter,
                                                const Clock& clock) -> std::unique_ptr<step::Executor> {
      auto executor = make_device(limits, letter, clock);
      executor_ = executor.get();
      return executor;
    };
    options.host = host_.get();
    return options;
  }

  void Foresee() {
    may_end_ns_.clear();
    for (const uint64_t left : tokens_left_) {
      // The next token may be there at once.
      const uint64_t steps = left > 0 ? left - 1 : 0;
      may_end_ns_.push_back(world_.now_ns() + static_cast<int64_t>(steps) * step_floor_ns_);
    }
    std::ranges::sort(may_end_ns_);
  }

  const int64_t step_floor_ns_;
  std::list<uint64_t> tokens_left_;             ///< Of each request under way, as last seen.
  std::vector<int64_t> may_end_ns_;             ///< When each of them ends at the earliest, in order.
  exec::EmulatedExecutor* executor_ = nullptr;  ///< Of world_.
  const std::unique_ptr<HostTier> host_;
  VirtualEngine world_;
};

}  // namespace kvist::lab
