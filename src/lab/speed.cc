#include "lab/speed.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "lab/sequences.h"

namespace kvist::lab {
namespace {

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
