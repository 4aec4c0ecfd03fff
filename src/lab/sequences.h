#pragma once

/// @file
/// Sequences in KV memory that plans of steps are made for without an engine, over and over from the same contexts:
/// what measurements of an executor share. Threads: one. Non-goals: what is measured (speed.h, step_speed.h).

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <semaphore>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/prng.h"
#include "base/status.h"
#include "kv/kv_memory.h"
#include "step/executor.h"

namespace kvist::lab {

/// Sequences that hold `depth` tokens; a measurement goes on from there, and the next one starts at `depth` again.
class Sequences {
 public:
  using GoOn = std::function<bool()>;

  /// @param shared_depth  tokens before `depth` that all have in common.
  Sequences(step::Executor& executor, kv::KvMemory& memory, const Clock& clock, uint32_t count, uint32_t depth,
            uint32_t shared_depth)
      : executor_(executor),
        memory_(memory),
        clock_(clock),
        lengths_(count, 0),
        depth_(depth),
        shared_depth_(shared_depth) {
    executor_.SetWake([this] { finished_.release(); });
    for (uint32_t i = 0; i <= count; ++i) memory_.Begin(IdOf(i), /*cache_namespace=*/i + 1, {});
  }
  ~Sequences() {
    executor_.SetWake({});
    for (uint32_t i = 0; i <= lengths_.size(); ++i) memory_.End(IdOf(i));
  }
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  /// Room for `tokens` more in the first `count` sequences.
  absl::Status Reserve(uint32_t count, uint32_t tokens) {
    bool fits = memory_.Reserve(SharedId(), shared_depth_);
    for (uint32_t i = 0; fits && i < count; ++i) fits = memory_.Reserve(IdOf(i), depth_ + tokens);
    if (fits) return absl::OkStatus();
    return absl::InvalidArgumentError(Cat("KV memory of ", uint64_t{memory_.frames_count()} * kv::kBlockTokens,
                                          " tokens is too small for ", count, " sequences of ", depth_ + tokens,
                                          shared_depth_ > 0 ? Cat(" and ", shared_depth_, " shared ones") : ""));
  }

  absl::Status Fill(const GoOn& go_on) {
    for (uint32_t done = 0; done < shared_depth_;) {
      const uint32_t chunk = std::min(shared_depth_ - done, executor_.Limits().tokens_per_step_max);
      plan_.Clear();
      AddTokens(static_cast<uint32_t>(lengths_.size()), done, /*position=*/done, chunk);
      plan_.segments.push_back({memory_.SpanOf(SharedId()), done, chunk});
      KVIST_RETURN_IF_ERROR(Execute(go_on));
      done += chunk;
    }
    for (uint32_t i = 0; i < lengths_.size(); ++i) {
      while (lengths_[i] < depth_) {
        const uint32_t chunk = std::min(depth_ - lengths_[i], executor_.Limits().tokens_per_step_max);
        plan_.Clear();
        AddSlice(i, chunk, /*whole_view=*/false, /*sample=*/false);
        KVIST_RETURN_IF_ERROR(Execute(go_on));
      }
    }
    return absl::OkStatus();
  }

  void Rewind() {
    std::ranges::fill(lengths_, depth_);
    host_ns_ = steps_ = 0;
  }

  /// One step after contexts that are no longer than what was filled: of `chunk` tokens after `before` others in
  /// sequence 0, if it has any, and of a token in each of the next `decodes` ones, which then sees `view`.
  absl::Status Step(uint32_t chunk, uint32_t before, uint32_t decodes, uint32_t view, const GoOn& go_on) {
    plan_.Clear();
    for (uint32_t i = chunk > 0 ? 0 : 1; i <= decodes; ++i) {
      lengths_[i] = i == 0 ? before : view - 1;
      AddSlice(i, i == 0 ? chunk : 1, /*whole_view=*/true, /*sample=*/true);
    }
    return Execute(go_on);
  }
  /// Of the last step, by the executor's own measure.
  double StepSeconds() const { return static_cast<double>(step_ns_) * 1e-9; }

  /// Speed::host_seconds since the last Rewind, of the average step.
  double HostSecondsOfStep() const { return static_cast<double>(host_ns_) * 1e-9 / static_cast<double>(steps_); }

  /// Advances the first `count` sequences by `tokens` in as few steps as the limits allow; samples at the end.
  absl::Status Advance(uint32_t count, uint32_t tokens, const GoOn& go_on) {
    const uint32_t chunk_max = std::max(1u, executor_.Limits().tokens_per_step_max / count);
    while (tokens > 0) {
      const uint32_t chunk = std::min(tokens, chunk_max);
      tokens -= chunk;
      plan_.Clear();
      for (uint32_t i = 0; i < count; ++i) AddSlice(i, chunk, /*whole_view=*/true, /*sample=*/tokens == 0);
      KVIST_RETURN_IF_ERROR(Execute(go_on));
    }
    return absl::OkStatus();
  }

 private:
  static RequestId IdOf(uint32_t i) { return RequestId{i + 1}; }
  /// Of what holds the shared tokens.
  RequestId SharedId() const { return IdOf(static_cast<uint32_t>(lengths_.size())); }

  /// @param whole_view  false: the new tokens see themselves only.
  void AddSlice(uint32_t i, uint32_t count, bool whole_view, bool sample) {
    step::Slice& slice = AddTokens(i, lengths_[i], shared_depth_ + lengths_[i], count);
    if (sample) slice.sampling = step::Sampling{.temperature = 0};
    if (whole_view && shared_depth_ > 0) {
      plan_.segments.push_back({memory_.SpanOf(SharedId()), 0, shared_depth_});
      ++slice.segments_count;
    }
    const uint32_t begin = whole_view ? 0 : lengths_[i];
    plan_.segments.push_back({slice.tail, begin, lengths_[i] + count - begin});
    lengths_[i] += count;
  }

  /// A slice of tokens that follow the first `begin` of sequence `i`; its last segment is the caller's.
  step::Slice& AddTokens(uint32_t i, uint32_t begin, uint32_t position, uint32_t count) {
    plan_.slices.push_back({.request = IdOf(i),
                            .position = position,
                            .tokens_begin = static_cast<uint32_t>(plan_.tokens.size()),
                            .tokens_count = count,
                            .segments_begin = static_cast<uint32_t>(plan_.segments.size()),
                            .segments_count = 1,
                            .tail = memory_.SpanOf(IdOf(i)),
                            .tail_begin = begin,
                            .commit_count = count});
    for (uint32_t t = 0; t < count; ++t) {
      const uint64_t draw = Mix64((uint64_t{i} << 32) + begin + t);
      plan_.tokens.push_back({TokenId{static_cast<uint32_t>(draw % executor_.Limits().vocab_size)}});
    }
    return plan_.slices.back();
  }

  absl::Status Execute(const GoOn& go_on) {
    if (!go_on()) return absl::CancelledError("interrupted");
    plan_.id = StepId{next_step_++};
    const TimeNs start = clock_.Now();
    KVIST_RETURN_IF_ERROR(executor_.Submit(std::move(plan_)));
    while (true) {
      finished_.acquire();
      KVIST_ASSIGN_OR_RETURN(std::optional<step::StepResult> result, executor_.Poll());
      if (!result) continue;
      step_ns_ = result->finished_at - result->started_at;
      host_ns_ += static_cast<uint64_t>((clock_.Now() - start) - step_ns_);
      ++steps_;
      plan_ = std::move(result->plan);
      executor_.Recycle(*std::move(result));
      return absl::OkStatus();
    }
  }

  step::Executor& executor_;
  kv::KvMemory& memory_;
  const Clock& clock_;
  step::StepPlan plan_;
  std::vector<uint32_t> lengths_;  ///< [sequences] tokens
  const uint32_t depth_, shared_depth_;
  std::counting_semaphore<> finished_{0};
  uint64_t next_step_ = 0;
  int64_t step_ns_ = 0;
  uint64_t host_ns_ = 0, steps_ = 0;
};

}  // namespace kvist::lab
