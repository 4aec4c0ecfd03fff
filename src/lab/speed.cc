#include "lab/speed.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "base/prng.h"
#include "base/status.h"

namespace kvist::lab {
namespace {

/// One measurement's sequences: they begin together, grow step by step and end together.
class Sequences {
 public:
  Sequences(step::Executor& executor, kv::KvMemory& memory, uint32_t count, uint64_t first_id)
      : executor_(executor), memory_(memory), lengths_(count, 0), first_id_(first_id) {
    for (uint32_t i = 0; i < count; ++i) memory_.Begin(Id(i), /*cache_namespace=*/first_id + i, {});
  }
  ~Sequences() {
    for (uint32_t i = 0; i < lengths_.size(); ++i) memory_.End(Id(i));
  }

  /// Advances every sequence by `tokens` in as few steps as the limits allow.
  absl::Status Advance(uint32_t tokens, bool sample) {
    const uint32_t sequences = static_cast<uint32_t>(lengths_.size());
    const uint32_t chunk_max = std::max(1u, executor_.Limits().tokens_per_step_max / sequences);
    while (tokens > 0) {
      const uint32_t chunk = std::min(tokens, chunk_max);
      tokens -= chunk;
      KVIST_RETURN_IF_ERROR(Step(chunk, sample && tokens == 0));
    }
    return absl::OkStatus();
  }

 private:
  RequestId Id(uint32_t i) const { return RequestId{first_id_ + i}; }

  absl::Status Step(uint32_t chunk, bool sample) {
    plan_.Clear();
    plan_.id = StepId{next_step_++};
    for (uint32_t i = 0; i < lengths_.size(); ++i) {
      if (!memory_.Reserve(Id(i), lengths_[i] + chunk))
        return absl::InvalidArgumentError("KV memory is too small for this");
      const SpanId span = memory_.SpanOf(Id(i));
      step::Slice slice{.request = Id(i),
                        .position = lengths_[i],
                        .tokens_begin = static_cast<uint32_t>(plan_.tokens.size()),
                        .tokens_count = chunk,
                        .segments_begin = static_cast<uint32_t>(plan_.segments.size()),
                        .segments_count = 1,
                        .tail = span,
                        .tail_begin = lengths_[i],
                        .commit_count = chunk};
      if (sample) slice.sampling = step::Sampling{.temperature = 0};
      plan_.segments.push_back({span, 0, lengths_[i] + chunk});
      tokens_.clear();
      for (uint32_t t = 0; t < chunk; ++t) {
        const uint64_t draw = Mix64((uint64_t{i} << 32) + lengths_[i] + t);
        tokens_.push_back(TokenId{static_cast<uint32_t>(draw % executor_.Limits().vocab_size)});
        plan_.tokens.push_back({tokens_.back()});
      }
      plan_.slices.push_back(std::move(slice));
      lengths_[i] += chunk;
      pending_commits_.push_back(tokens_);
    }
    KVIST_RETURN_IF_ERROR(executor_.Submit(std::move(plan_)));
    while (true) {
      KVIST_ASSIGN_OR_RETURN(std::optional<step::StepResult> result, executor_.Poll());
      if (result) {
        plan_ = std::move(result->plan);
        break;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    for (uint32_t i = 0; i < lengths_.size(); ++i) memory_.Commit(Id(i), pending_commits_[i]);
    pending_commits_.clear();
    return absl::OkStatus();
  }

  step::Executor& executor_;
  kv::KvMemory& memory_;
  step::StepPlan plan_;
  std::vector<uint32_t> lengths_;
  std::vector<TokenId> tokens_;
  std::vector<std::vector<TokenId>> pending_commits_;
  uint64_t first_id_;
  uint64_t next_step_ = 0;
};

std::string DecodeName(const SpeedOptions& options) {
  std::string name = Cat("tg", options.decode_tokens);
  if (options.batch > 1) name += Cat("@b", options.batch);
  if (options.context_tokens > 0) name += Cat("@c", options.context_tokens);
  return name;
}

}  // namespace

absl::StatusOr<std::vector<Speed>> MeasureSpeed(step::Executor& executor, kv::KvMemory& memory, const Clock& clock,
                                                const SpeedOptions& options) {
  const uint64_t longest = uint64_t{options.context_tokens} + std::max(options.prompt_tokens, options.decode_tokens);
  if (longest > executor.Limits().context_tokens_max) {
    return absl::InvalidArgumentError(
        Cat(longest, " tokens do not fit a context of ", executor.Limits().context_tokens_max));
  }
  std::vector<Speed> speeds;
  if (options.prompt_tokens > 0) speeds.push_back({Cat("pp", options.prompt_tokens), {}});
  if (options.decode_tokens > 0) speeds.push_back({DecodeName(options), {}});
  uint64_t next_id = 1;
  for (uint32_t round = 0; round <= options.repetitions; ++round) {
    auto speed = speeds.begin();
    if (options.prompt_tokens > 0) {
      Sequences prompt(executor, memory, 1, next_id++);
      const TimeNs start = clock.Now();
      KVIST_RETURN_IF_ERROR(prompt.Advance(options.prompt_tokens, /*sample=*/true));
      if (round > 0) speed->tokens_per_s.push_back(options.prompt_tokens / Seconds(clock.Now() - start));
      ++speed;
    }
    if (options.decode_tokens > 0) {
      Sequences decode(executor, memory, options.batch, next_id);
      next_id += options.batch;
      KVIST_RETURN_IF_ERROR(decode.Advance(options.context_tokens, /*sample=*/false));
      const TimeNs start = clock.Now();
      for (uint32_t i = 0; i < options.decode_tokens; ++i) KVIST_RETURN_IF_ERROR(decode.Advance(1, /*sample=*/true));
      const double tokens = double{1} * options.decode_tokens * options.batch;
      if (round > 0) speed->tokens_per_s.push_back(tokens / Seconds(clock.Now() - start));
    }
  }
  for (Speed& speed : speeds) std::ranges::sort(speed.tokens_per_s);
  return speeds;
}

}  // namespace kvist::lab
