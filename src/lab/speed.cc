#include "lab/speed.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <semaphore>

#include "base/check.h"
#include "base/prng.h"
#include "base/status.h"

namespace kvist::lab {
namespace {

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

  /// One step after contexts that are no longer than what was filled: sequence 0 has the prompt, the next ones decode.
  absl::Status Step(const MeasuredStep& step, const GoOn& go_on) {
    plan_.Clear();
    for (uint32_t i = step.chunk > 0 ? 0 : 1; i <= step.decodes; ++i) {
      lengths_[i] = i == 0 ? step.before : step.view - 1;
      AddSlice(i, i == 0 ? step.chunk : 1, /*whole_view=*/true, /*sample=*/true);
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

std::vector<Speed> Plan(const SpeedOptions& options, uint32_t depth) {
  std::vector<Speed> speeds;
  speeds.reserve(options.prompts.size() + options.batches.size());
  const std::string at = Cat(options.shared_depth > 0 ? Cat("@s", options.shared_depth) : std::string(),
                             depth > 0 ? Cat("@d", depth) : std::string());
  for (uint32_t tokens : options.prompts)
    speeds.push_back({.name = Cat("pp", tokens, at),
                      .kind = SpeedKind::kPrompt,
                      .tokens = tokens,
                      .depth = depth,
                      .shared_depth = options.shared_depth});
  if (options.decode_tokens == 0) return speeds;
  for (uint32_t batch : options.batches) {
    const std::string beside = batch > 1 ? Cat("@b", batch) : std::string();
    speeds.push_back({.name = Cat("tg", options.decode_tokens, beside, at),
                      .kind = SpeedKind::kDecode,
                      .tokens = options.decode_tokens,
                      .batch = batch,
                      .depth = depth,
                      .shared_depth = options.shared_depth});
  }
  return speeds;
}

absl::Status MeasureOnce(Sequences& sequences, const Speed& speed, const Sequences::GoOn& go_on) {
  if (speed.kind == SpeedKind::kPrompt) return sequences.Advance(1, speed.tokens, go_on);
  for (uint32_t i = 0; i < speed.tokens; ++i) KVIST_RETURN_IF_ERROR(sequences.Advance(speed.batch, 1, go_on));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Speed>> MeasureAtDepth(step::Executor& executor, kv::KvMemory& memory, const Clock& clock,
                                                  const SpeedOptions& options, uint32_t depth) {
  std::vector<Speed> speeds = Plan(options, depth);
  uint32_t sequences_count = 1;
  for (const Speed& speed : speeds) sequences_count = std::max(sequences_count, speed.batch);
  Sequences sequences(executor, memory, clock, sequences_count, depth, options.shared_depth);
  for (const Speed& speed : speeds) KVIST_RETURN_IF_ERROR(sequences.Reserve(speed.batch, speed.tokens));
  const auto go_on_with = [&](std::string_view name, uint32_t round) -> Sequences::GoOn {
    return [&options, name, round] { return !options.progress || options.progress(name, round); };
  };
  const std::string filling = Cat("context of ", options.shared_depth + depth);
  KVIST_RETURN_IF_ERROR(sequences.Fill(go_on_with(filling, 0)));
  for (uint32_t round = 0; round <= options.repetitions; ++round) {
    for (Speed& speed : speeds) {
      const Sequences::GoOn go_on = go_on_with(speed.name, round);
      sequences.Rewind();
      const TimeNs start = clock.Now();
      KVIST_RETURN_IF_ERROR(MeasureOnce(sequences, speed, go_on));
      if (round == 0) continue;
      speed.seconds.push_back(Seconds(clock.Now() - start));
      speed.host_seconds.push_back(sequences.HostSecondsOfStep());
    }
  }
  for (Speed& speed : speeds) {
    std::ranges::sort(speed.seconds);
    std::ranges::sort(speed.host_seconds);
  }
  return speeds;
}

}  // namespace

double Speed::SecondsAt(double fraction) const {
  const double at = fraction * static_cast<double>(seconds.size() - 1);
  const size_t low = static_cast<size_t>(at), high = std::min(low + 1, seconds.size() - 1);
  return seconds[low] + (at - static_cast<double>(low)) * (seconds[high] - seconds[low]);
}

uint32_t TokensNeeded(const SpeedOptions& options) {
  uint32_t tokens = options.decode_tokens, depth = 0;
  for (uint32_t prompt : options.prompts) tokens = std::max(tokens, prompt);
  for (uint32_t d : options.depths) depth = std::max(depth, d);
  return tokens + depth + options.shared_depth;
}

absl::StatusOr<double> TimePrompt(step::Executor& executor, kv::KvMemory& memory, const Clock& clock, uint32_t tokens) {
  Sequences sequences(executor, memory, clock, /*count=*/1, /*depth=*/0, /*shared_depth=*/0);
  KVIST_RETURN_IF_ERROR(sequences.Reserve(1, tokens));
  const TimeNs start = clock.Now();
  KVIST_RETURN_IF_ERROR(sequences.Advance(1, tokens, [] { return true; }));
  return Seconds(clock.Now() - start);
}

std::vector<MeasuredStep> StepGrid(const step::ExecutorLimits& limits, uint32_t decodes_max, uint32_t context_max) {
  constexpr uint32_t kChunkMin = 8, kViewMin = 32;
  decodes_max = std::min(decodes_max, limits.slices_per_step_max - 1);
  const uint32_t chunk_max = limits.tokens_per_step_max - decodes_max;
  const auto up_to = [](uint32_t begin, uint32_t end, uint32_t factor) {
    std::vector<uint32_t> values;
    for (uint32_t value = begin; value < end; value *= factor) values.push_back(value);
    values.push_back(end);
    return values;
  };
  std::vector<MeasuredStep> steps;
  for (const uint32_t decodes : up_to(1, decodes_max, 2)) {
    for (const uint32_t view : up_to(kViewMin, context_max, 4)) steps.push_back({.decodes = decodes, .view = view});
  }
  std::vector<uint32_t> befores = up_to(4 * kViewMin, context_max, 4);
  befores.insert(befores.begin(), 0);
  for (const uint32_t chunk : up_to(kChunkMin, chunk_max, 2)) {
    for (const uint32_t before : befores) {
      steps.push_back({.chunk = chunk, .before = before});
      for (const uint32_t decodes : up_to(1, decodes_max, 4)) {
        for (const uint32_t view : {kViewMin, context_max}) {
          steps.push_back({.chunk = chunk, .before = before, .decodes = decodes, .view = view});
        }
      }
    }
  }
  return steps;
}

absl::Status MeasureSteps(step::Executor& executor, kv::KvMemory& memory, const Clock& clock,
                          const SpeedOptions& options, std::vector<MeasuredStep>& steps) {
  KVIST_CHECK(options.repetitions > 0);
  uint32_t decodes = 0, depth = 0, chunk = 0;
  for (const MeasuredStep& step : steps) {
    decodes = std::max(decodes, step.decodes);
    depth = std::max({depth, step.before, step.view});
    chunk = std::max(chunk, step.chunk);
  }
  Sequences sequences(executor, memory, clock, decodes + 1, depth, /*shared_depth=*/0);
  KVIST_RETURN_IF_ERROR(sequences.Reserve(1, chunk));
  KVIST_RETURN_IF_ERROR(sequences.Reserve(decodes + 1, 1));
  const auto go_on_with = [&](std::string_view name, uint32_t round) -> Sequences::GoOn {
    return [&options, name, round] { return !options.progress || options.progress(name, round); };
  };
  KVIST_RETURN_IF_ERROR(sequences.Fill(go_on_with("contexts", 0)));
  std::vector<std::vector<double>> seconds(steps.size());
  // In rounds, so that a disturbance does not fall on all measurements of one step. Single tokens follow each other, as
  // they do in a server: after a prompt the first ones are slower.
  constexpr uint32_t kInARow = 5;
  for (uint32_t round = 0; round <= options.repetitions; ++round) {
    for (size_t i = 0; i < steps.size(); ++i) {
      const uint32_t times = steps[i].chunk == 0 ? kInARow : 1;
      for (uint32_t time = 0; time < times; ++time) {
        KVIST_RETURN_IF_ERROR(sequences.Step(steps[i], go_on_with("steps", round)));
        if (round > 0 && (time > 1 || times == 1)) seconds[i].push_back(sequences.StepSeconds());
      }
    }
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    std::ranges::nth_element(seconds[i], seconds[i].begin() + seconds[i].size() / 2);
    steps[i].seconds = seconds[i][seconds[i].size() / 2];
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Speed>> MeasureSpeed(step::Executor& executor, kv::KvMemory& memory, const Clock& clock,
                                                const SpeedOptions& options) {
  KVIST_CHECK(options.repetitions > 0);
  const step::ExecutorLimits& limits = executor.Limits();
  if (TokensNeeded(options) > limits.context_tokens_max) {
    return absl::InvalidArgumentError(
        Cat(TokensNeeded(options), " tokens do not fit a context of ", limits.context_tokens_max));
  }
  for (uint32_t batch : options.batches) {
    if (batch == 0 || batch > limits.slices_per_step_max || batch > limits.tokens_per_step_max) {
      return absl::InvalidArgumentError(
          Cat("a batch of ", batch, " does not fit a step of ", limits.slices_per_step_max, " sequences"));
    }
  }
  std::vector<Speed> speeds;
  for (uint32_t depth : options.depths) {
    KVIST_ASSIGN_OR_RETURN(const std::vector<Speed> at_depth, MeasureAtDepth(executor, memory, clock, options, depth));
    speeds.insert(speeds.end(), at_depth.begin(), at_depth.end());
  }
  return speeds;
}

}  // namespace kvist::lab
