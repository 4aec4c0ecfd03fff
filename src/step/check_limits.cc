#include "step/check_limits.h"

#include "base/status.h"

namespace kvist::step {

absl::Status CheckLimits(const StepPlan& plan, const ExecutorLimits& limits) {
  if (plan.tokens.size() > limits.tokens_per_step_max || plan.slices.size() > limits.slices_per_step_max) {
    return absl::InvalidArgumentError(Cat("step of ", plan.tokens.size(), " tokens in ", plan.slices.size(),
                                          " slices; at most ", limits.tokens_per_step_max, " and ",
                                          limits.slices_per_step_max));
  }
  if (!plan.copies.empty()) return absl::InvalidArgumentError("page copies: this executor has one tier");
  for (const TokenRef& token : plan.tokens) {
    if (token.from_row >= 0)
      return absl::InvalidArgumentError("tokens from steps in flight: this executor runs one step");
    if (token.known.value >= limits.vocab_size) {
      return absl::InvalidArgumentError(Cat("token ", token.known.value, " of a vocabulary of ", limits.vocab_size));
    }
  }
  for (TokenId target : plan.score_targets) {
    if (target.value >= limits.vocab_size) {
      return absl::InvalidArgumentError(Cat("token ", target.value, " of a vocabulary of ", limits.vocab_size));
    }
  }
  for (const Slice& slice : plan.slices) {
    const bool covers_vocabulary = slice.allowed_count == (limits.vocab_size + 31) / 32;
    if (slice.allowed_count != 0 && !covers_vocabulary) {
      return absl::InvalidArgumentError(
          Cat("allowed tokens in ", slice.allowed_count, " words for a vocabulary of ", limits.vocab_size));
    }
    uint64_t view = 0;
    for (uint32_t i = 0; i < slice.segments_count; ++i) view += plan.segments[slice.segments_begin + i].tokens_count;
    if (view > limits.context_tokens_max) {
      return absl::InvalidArgumentError(Cat("request ", slice.request.value, ": a view of ", view,
                                            " tokens is longer than ", limits.context_tokens_max));
    }
    if (slice.mask != Mask::kCausal) return absl::InvalidArgumentError("only causal masks are supported");
  }
  return absl::OkStatus();
}

}  // namespace kvist::step
