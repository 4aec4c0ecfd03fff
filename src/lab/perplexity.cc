#include "lab/perplexity.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "base/status.h"

namespace kvist::lab {
namespace {

constexpr uint32_t kWindowTokensDefault = 2048;

/// Evaluates windows one after the other, each as a sequence of its own.
class WindowRunner {
 public:
  /// Told the counted tokens of the window so far after each step; false ends the run (Cancelled).
  using Progress = std::function<bool(uint64_t)>;

  WindowRunner(step::Executor& executor, kv::KvMemory& memory, const PerplexityOptions& options, Progress progress)
      : executor_(executor), memory_(memory), options_(options), progress_(std::move(progress)) {}

  /// Log probabilities of tokens[first_target..], each given all before it.
  /// REQUIRES: first_target >= 1 and below tokens.size().
  absl::StatusOr<std::span<const float>> Run(std::span<const TokenId> tokens, uint32_t first_target) {
    logprobs_.clear();
    memory_.Begin(kSequence, /*cache_namespace=*/0, {});
    absl::Status status;
    // The last token is only a target: nothing that counts follows it.
    const uint32_t rows = static_cast<uint32_t>(tokens.size()) - 1;
    for (uint32_t begin = 0; begin < rows && status.ok(); begin += options_.chunk_tokens) {
      status = Step(tokens, begin, std::min(rows - begin, options_.chunk_tokens), first_target);
      if (status.ok() && !progress_(logprobs_.size())) status = absl::CancelledError("interrupted");
    }
    memory_.End(kSequence);
    if (!status.ok()) return status;
    return logprobs_;
  }

 private:
  static constexpr RequestId kSequence{1};

  absl::Status Step(std::span<const TokenId> tokens, uint32_t begin, uint32_t count, uint32_t first_target) {
    const uint32_t end = begin + count;
    if (!memory_.Reserve(kSequence, end)) {
      return absl::ResourceExhaustedError(
          Cat("KV memory holds fewer than the ", end, " tokens that this window needs"));
    }
    const SpanId span = memory_.SpanOf(kSequence);
    // Row r predicts token r + 1; the rows that count are the last ones.
    const uint32_t scores = std::min(count, end - std::min(end, first_target - 1));
    plan_.Clear();
    plan_.id = StepId{next_step_++};
    plan_.slices.push_back({.request = kSequence,
                            .position = begin,
                            .tokens_count = count,
                            .segments_count = 1,
                            .tail = span,
                            .tail_begin = begin,
                            .commit_count = count,
                            .scores_count = scores,
                            .scores_row = count - scores});
    plan_.segments.push_back({span, 0, end});
    for (uint32_t t = begin; t < end; ++t) plan_.tokens.push_back({tokens[t]});
    for (uint32_t t = end - scores; t < end; ++t) plan_.score_targets.push_back(tokens[t + 1]);
    KVIST_RETURN_IF_ERROR(executor_.Submit(std::move(plan_)));
    while (true) {
      KVIST_ASSIGN_OR_RETURN(std::optional<step::StepResult> result, executor_.Poll());
      if (result) {
        logprobs_.insert(logprobs_.end(), result->scores.begin(), result->scores.end());
        plan_ = std::move(result->plan);
        break;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    memory_.Commit(kSequence, tokens.subspan(begin, count));
    if (!options_.rewrite) return absl::OkStatus();
    for (uint32_t block = begin / kv::kBlockTokens; block < end / kv::kBlockTokens; ++block) {
      options_.rewrite(memory_.spans().FrameOf(span, block));
    }
    return absl::OkStatus();
  }

  step::Executor& executor_;
  kv::KvMemory& memory_;
  const PerplexityOptions& options_;
  const Progress progress_;
  step::StepPlan plan_;
  std::vector<float> logprobs_;
  uint64_t next_step_ = 0;
};

/// Checks the options against the executor and the text; fills in what was left open.
absl::Status Settle(const step::ExecutorLimits& limits, bool has_leading, size_t text_tokens,
                    PerplexityOptions& options) {
  const uint32_t context = limits.context_tokens_max;
  if (options.window_tokens == 0) options.window_tokens = std::min(kWindowTokensDefault, context);
  if (options.window_tokens < 2 || options.window_tokens > context) {
    return absl::InvalidArgumentError(
        Cat("windows of ", options.window_tokens, " tokens: at least 2 and at most the context of ", context));
  }
  // What stands before a window's first counted token: the leading token, or the last token of the window before.
  const uint32_t stride_max = options.window_tokens - 1;
  if (options.stride_tokens == 0) options.stride_tokens = stride_max;
  if (options.stride_tokens > stride_max) {
    return absl::InvalidArgumentError(Cat("a stride of ", options.stride_tokens, " tokens leaves out some: windows of ",
                                          options.window_tokens, " allow at most ", stride_max));
  }
  const uint32_t chunk_max = limits.tokens_per_step_max;
  options.chunk_tokens = options.chunk_tokens == 0 ? chunk_max : std::min(options.chunk_tokens, chunk_max);
  if (text_tokens + (has_leading ? 1 : 0) < 2) {
    return absl::InvalidArgumentError(Cat("a text of ", text_tokens, " tokens has nothing to predict"));
  }
  return absl::OkStatus();
}

}  // namespace

double PerplexityResult::Perplexity() const {
  return std::exp(MeanNll());
}

absl::StatusOr<PerplexityResult> MeasurePerplexity(step::Executor& executor, kv::KvMemory& memory,
                                                   std::optional<TokenId> leading, std::span<const TokenId> text,
                                                   const PerplexityOptions& given) {
  PerplexityOptions options = given;
  KVIST_RETURN_IF_ERROR(Settle(executor.Limits(), leading.has_value(), text.size(), options));
  const size_t before = leading ? 1 : 0;  // Tokens of a window that are not the text's.
  const size_t total = text.size() - (leading ? 0 : 1);
  PerplexityResult result{.window_tokens = options.window_tokens, .stride_tokens = options.stride_tokens};
  WindowRunner runner(executor, memory, options, [&](uint64_t in_window) {
    return !options.progress || options.progress(result.tokens + in_window, total);
  });
  std::vector<TokenId> window;
  size_t counted_end = leading ? 0 : 1;  // Text tokens before it are counted, or cannot be.
  for (size_t begin = 0; counted_end < text.size(); begin += options.stride_tokens) {
    const size_t end = std::min(text.size(), begin + options.window_tokens - before);
    window.clear();
    if (leading) window.push_back(*leading);
    window.insert(window.end(), text.begin() + begin, text.begin() + end);
    KVIST_ASSIGN_OR_RETURN(const std::span<const float> logprobs,
                           runner.Run(window, static_cast<uint32_t>(counted_end - begin + before)));
    for (const float logprob : logprobs) result.nll_sum -= double{logprob};
    result.tokens += logprobs.size();
    ++result.windows;
    counted_end = end;
  }
  return result;
}

}  // namespace kvist::lab
