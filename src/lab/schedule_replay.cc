#include "lab/schedule_replay.h"

#include <algorithm>
#include <cmath>

#include "base/prng.h"
#include "base/status.h"

namespace kvist::lab {
namespace {

/// A request that is to come.
struct Arrival {
  int64_t at_ns = 0;
  uint32_t source = 0;
  uint32_t output_tokens = 0;
  uint64_t draw = 0;  ///< Orders those of the same instant.
  engine::GenerationRequest generation;
};

uint32_t Drawn(Prng& prng, uint32_t min, uint32_t max) {
  const double log = std::log(min) + prng.Uniform() * (std::log(max) - std::log(min));
  return std::clamp(static_cast<uint32_t>(std::lround(std::exp(log))), min, max);
}

/// Tokens that only requests with the same seed share.
void AppendTokens(uint64_t seed, uint32_t count, uint32_t vocab, std::vector<TokenId>& tokens) {
  for (uint32_t i = 0; i < count; ++i) tokens.push_back(TokenId{static_cast<uint32_t>(Mix64(seed ^ Mix64(i)) % vocab)});
}

std::vector<Arrival> Arrivals(const std::vector<ScheduleSource>& sources, const std::vector<LoggedLengths>& log,
                              uint32_t vocab, const ScheduleOptions& options) {
  std::vector<Arrival> arrivals;
  size_t logged = 0;
  for (uint32_t s = 0; s < sources.size(); ++s) {
    const ScheduleSource& source = sources[s];
    Prng prng(options.seed + s);
    double at_s = source.start_s;
    for (uint32_t i = 0; i < source.count; ++i) {
      LoggedLengths lengths = source.from_log
                                  ? log[logged++ % log.size()]
                                  : LoggedLengths{.prompt_tokens = Drawn(prng, source.prompt_min, source.prompt_max),
                                                  .output_tokens = Drawn(prng, source.output_min, source.output_max)};
      if (options.know_lengths) lengths.output_tokens_predicted = lengths.output_tokens;
      Arrival arrival{.at_ns = static_cast<int64_t>(at_s * 1e9),
                      .source = s,
                      .output_tokens = lengths.output_tokens,
                      .draw = prng.Next()};
      const uint32_t shared = std::min(source.prefix_tokens, lengths.prompt_tokens - 1);
      AppendTokens(Mix64(s + 1), shared, vocab, arrival.generation.prompt);
      AppendTokens(Mix64((uint64_t{s} + 1) << 32 | i), lengths.prompt_tokens - shared, vocab,
                   arrival.generation.prompt);
      arrival.generation.max_tokens = lengths.output_tokens;
      arrival.generation.output_tokens_predicted = lengths.output_tokens_predicted;
      arrival.generation.sampling.temperature = 0;
      arrival.generation.ignore_eos = true;
      arrival.generation.tenant = TenantId{source.tenant};
      arrival.generation.priority = source.priority;
      arrivals.push_back(std::move(arrival));
      if (source.rate > 0) at_s += (source.regular ? 1 : -std::log(1 - prng.Uniform())) / source.rate;
    }
  }
  // What comes at the same instant is mixed.
  std::ranges::sort(arrivals, {}, [](const Arrival& arrival) { return std::pair(arrival.at_ns, arrival.draw); });
  return arrivals;
}

/// The engine, and what is seen of the requests.
class World {
 public:
  World(const Tokenizer& tokenizer, const VirtualEngineOptions& options) : world_(tokenizer, options) {}

  ScheduleResult Run(std::vector<Arrival> arrivals, size_t sources) {
    result_.requests.resize(arrivals.size());
    result_.token_gaps.resize(sources);
    size_t next = 0;
    do {
      for (; next < arrivals.size() && arrivals[next].at_ns <= world_.now_ns(); ++next) Submit(next, arrivals[next]);
    } while (world_.Advance(next < arrivals.size() ? arrivals[next].at_ns : INT64_MAX));
    result_.duration_ns = world_.now_ns();
    result_.stats = world_.engine().Stats();
    return std::move(result_);
  }

 private:
  void Submit(size_t index, Arrival& arrival) {
    RequestTimes& times = result_.requests[index];
    times.source = arrival.source;
    times.arrived_ns = arrival.at_ns;
    times.prompt_tokens = static_cast<uint32_t>(arrival.generation.prompt.size());
    times.output_tokens = arrival.output_tokens;
    world_.engine().Submit(std::move(arrival.generation),
                           [this, index, last = int64_t{-1}](engine::GenerationEvent&& e) mutable {
                             RequestTimes& of = result_.requests[index];
                             const int64_t now = world_.now_ns();
                             if (!e.token_ids.empty()) {
                               if (of.first_token_ns < 0) of.first_token_ns = now;
                               if (last >= 0) result_.token_gaps[of.source].push_back(static_cast<double>(now - last));
                               last = now;
                             }
                             if (e.finish == engine::FinishReason::kLength || e.finish == engine::FinishReason::kStop)
                               of.finished_ns = now;
                           });
  }

  ScheduleResult result_;
  VirtualEngine world_;
};

}  // namespace

absl::StatusOr<ScheduleResult> ReplaySchedule(const Tokenizer& tokenizer, const std::vector<ScheduleSource>& sources,
                                              const std::vector<LoggedLengths>& log, const ScheduleOptions& options) {
  if (sched::FindPolicy(options.world.policy) == nullptr) {
    return absl::InvalidArgumentError(Cat("no policy is called \"", options.world.policy, "\""));
  }
  for (const ScheduleSource& source : sources) {
    if (source.from_log && log.empty()) {
      return absl::InvalidArgumentError(Cat("\"", source.name, "\" takes its lengths from a log, and there is none"));
    }
  }
  return World(tokenizer, options.world).Run(Arrivals(sources, log, tokenizer.vocab_size(), options), sources.size());
}

}  // namespace kvist::lab
