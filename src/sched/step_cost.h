#pragma once

/// @file
/// What a step is expected to take: the work in it, and the price of each kind of work as plain numbers. Policies add
/// up work and ask for the time; StepTimeModel learns the prices. Pure. Threads: any.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace kvist::sched {

/// The work of one step.
struct StepWork {
  uint32_t tokens = 0;          ///< Rows of all slices.
  uint32_t prompt_tokens = 0;   ///< Of these, rows of slices that are more than one token, or give none.
  uint32_t sampled = 0;         ///< Slices that give a token.
  uint64_t decode_context = 0;  ///< Keys that slices of one token read.
  uint64_t prompt_pairs = 0;    ///< Query times key of the other slices.

  /// @param context  tokens in view before the slice's own
  void Add(uint32_t slice_tokens, uint32_t context, bool samples) {
    tokens += slice_tokens;
    sampled += samples ? 1 : 0;
    if (slice_tokens == 1 && samples) {
      decode_context += context + 1;
    } else {
      prompt_tokens += slice_tokens;
      prompt_pairs += uint64_t{slice_tokens} * (context + (slice_tokens + 1) / 2);
    }
  }
};

/// Nanoseconds of each kind of work. A row costs less the more there are: weights are read once for all of them until
/// arithmetic takes longer than that, so rows have three prices, by how many come before them in the step.
struct StepCost {
  static constexpr uint32_t kFewRows = 32, kSomeRows = 256;
  enum Kind : uint8_t { kStep, kFirstRow, kNextRow, kLaterRow, kSampled, kDecodeKey, kPromptPair, kKinds };
  static constexpr std::array<std::string_view, kKinds> kKindNames = {
      "step", "first_row", "next_row", "later_row", "sampled_token", "decode_key", "prompt_pair"};
  using Amounts = std::array<double, kKinds>;

  /// Until anything was measured: a model of some hundred million weights on two cores.
  Amounts ns = {2e6, 0.8e6, 0.5e6, 0.5e6, 0.3e6, 100, 10};
  double error_ratio = 0.25;  ///< Mean of |predicted - measured| / measured of late.

  static Amounts AmountsOf(const StepWork& work) {
    const uint32_t few = std::min(work.tokens, kFewRows);
    const uint32_t some = std::min(work.tokens, kSomeRows) - few;
    return {1.0,
            static_cast<double>(few),
            static_cast<double>(some),
            static_cast<double>(work.tokens - few - some),
            static_cast<double>(work.sampled),
            static_cast<double>(work.decode_context),
            static_cast<double>(work.prompt_pairs)};
  }
  double Ns(const StepWork& work) const {
    const Amounts amounts = AmountsOf(work);
    double sum = 0;
    for (size_t i = 0; i < kKinds; ++i) sum += amounts[i] * ns[i];
    return sum;
  }
  /// Reading `tokens` of a prompt with `context` tokens before them, in steps of 256 with nothing else in them.
  double PromptNs(uint32_t tokens, uint32_t context) const {
    if (tokens == 0) return 0;
    const uint32_t steps = (tokens + kSomeRows - 1) / kSomeRows;
    const uint32_t each = tokens / steps;
    StepWork work;
    work.Add(each, context + (tokens - each) / 2, /*samples=*/false);
    return Ns(work) * steps + ns[kSampled];
  }
};

}  // namespace kvist::sched
