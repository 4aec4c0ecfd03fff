#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/status.h"
#include "engine/engine.h"
#include "grammar/forced_tokens.h"

namespace kvist::engine {

/// Appends one token, sampled or forced.
Engine::Growth Engine::Grow(Request& request, TokenEvent event) {
  const TokenId token = event.token;
  request.tokens.push_back(token);
  ++request.usage.output_tokens;
  ++request.meter->generated_tokens;
  ++work_.generated_tokens;
  if (request.NeedsCounts()) request.Count(token, /*is_output=*/true);
  if (request.matcher && !request.matcher->Accept(token)) {
    return {FinishReason::kError, absl::InternalError(Cat("token ", token.value, " is not in the request's grammar"))};
  }
  const bool ends = (tokenizer_.IsEndOfGeneration(token) && !request.input.ignore_eos) ||
                    std::ranges::find(request.input.stop_tokens, token) != request.input.stop_tokens.end();
  const bool stopped = ends || request.text.Push(std::move(event));
  if (stopped || (request.matcher && request.matcher->IsDone())) return {FinishReason::kStop, absl::OkStatus()};
  if (request.output_count() >= request.output_max) return {FinishReason::kLength, absl::OkStatus()};
  return {};
}

/// Appends what the grammar forces, and sees whether anything may follow at all.
Engine::Growth Engine::Settle(Request& request) {
  if (!request.matcher) return {};
  // Log probabilities need logits, and attention is measured where the first token is sampled.
  const bool skips = !request.input.sampling.want_logprobs && request.input.mass_ranges.empty();
  while (skips) {
    const size_t left = request.output_max - request.output_count();
    const std::vector<TokenId> forced = grammar::ForcedTokens(*request.matcher, tokenizer_, left);
    for (const TokenId token : forced) {
      ++work_.forced_tokens;
      Growth growth = Grow(request, {.token = token, .logprob = 0, .top = {}});
      if (growth.finish != FinishReason::kNone) return growth;
    }
    if (forced.empty()) break;
  }
  if (request.matcher->IsDone()) return {FinishReason::kStop, absl::OkStatus()};
  if (std::ranges::all_of(request.matcher->Mask(), [](uint32_t word) { return word == 0; })) {
    return {FinishReason::kError,
            absl::InvalidArgumentError("the grammar cannot go on: no token of the vocabulary fits, or it is nested too "
                                       "deep")};
  }
  return {};
}

/// Brings a new request to where its output is in its grammar.
Engine::Growth Engine::BeginConstraint(Request& request) {
  const GenerationRequest& input = request.input;
  const auto fault = [](std::string_view message) -> Growth {
    return {FinishReason::kError, absl::InvalidArgumentError(ToAbsl(message))};
  };
  if (input.constraint->table().vocab_size() > executor_.Limits().vocab_size) {
    return fault("the grammar is for another vocabulary");
  }
  request.matcher.emplace(input.constraint, input.strip_leading_space);
  for (const TokenId token : std::span(input.prompt).last(input.prompt_output_tokens)) {
    if (!request.matcher->Accept(token)) return fault("the output so far is not in the grammar");
  }
  return Settle(request);
}

/// Each token of a prompt is scored where the one before it is computed.
void Engine::AddScores(const Request& request, step::Slice& slice) {
  if (!request.ScoresPrompt()) return;
  const auto prompt = static_cast<uint32_t>(request.input.prompt.size());
  const uint32_t first = std::max(request.computed + 1, request.prompt_scored);
  const uint32_t end = std::min(request.computed + slice.tokens_count + 1, prompt);
  if (first >= end) return;
  slice.scores_begin = static_cast<uint32_t>(plan_.score_targets.size());
  slice.scores_count = end - first;
  slice.scores_row = first - 1 - request.computed;
  slice.scores_top = request.input.sampling.logprobs_count;
  const auto targets = std::span(request.tokens).subspan(first, slice.scores_count);
  plan_.score_targets.insert(plan_.score_targets.end(), targets.begin(), targets.end());
}

void Engine::TakeScores(Request& request, const step::StepResult& result, const step::Slice& slice,
                        uint32_t tops_begin) {
  if (!request.ScoresPrompt()) return;
  if (request.prompt_scored == 0) {
    request.prompt_logprobs.push_back({.token = request.tokens[0], .logprob = NAN, .top = {}});
    request.prompt_scored = 1;
  }
  KVIST_CHECK(result.scores.size() >= slice.scores_begin + slice.scores_count &&
              result.score_tops.size() >= tops_begin + size_t{slice.scores_count} * slice.scores_top);
  const step::TokenLogprob* top = result.score_tops.data() + tops_begin;
  for (uint32_t i = 0; i < slice.scores_count; ++i, top += slice.scores_top) {
    request.prompt_logprobs.push_back({.token = request.tokens[request.prompt_scored++],
                                       .logprob = result.scores[slice.scores_begin + i],
                                       .top = {top, top + slice.scores_top}});
  }
}

/// Says which tokens the slice may sample.
void Engine::AddAllowed(Request& request, step::Slice& slice) {
  if (!request.matcher) return;
  const std::span<const uint32_t> mask = request.matcher->Mask();
  slice.allowed_begin = static_cast<uint32_t>(plan_.allowed.size());
  slice.allowed_count = (executor_.Limits().vocab_size + 31) / 32;  // May have entries that are no tokens.
  plan_.allowed.insert(plan_.allowed.end(), mask.begin(), mask.end());
  plan_.allowed.resize(slice.allowed_begin + slice.allowed_count, 0);
  if (!request.input.ignore_eos) return;
  const grammar::TokenBits& ends = request.matcher->table().ends();
  for (size_t i = 0; i < ends.size(); ++i) plan_.allowed[slice.allowed_begin + i] &= ~ends[i];
}

}  // namespace kvist::engine
