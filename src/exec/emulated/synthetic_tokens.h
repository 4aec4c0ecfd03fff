#pragma once

/// @file
/// Tokens without a model: what comes next follows from the last token and its position alone, so that a text goes on
/// in the same way whatever else runs and however it was computed. Pure; any thread.

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/prng.h"
#include "base/units.h"

namespace kvist::exec {

struct SyntheticTokens {
  std::vector<TokenId> alphabet;  ///< At least one.
  TokenId end{};                  ///< That ends a text;
  double end_chance = 0;          ///< with this chance at each token.
  uint64_t seed = 1;

  TokenId Next(TokenId last, uint32_t position) const {
    if (alphabet.size() == 1 && end_chance <= 0) return alphabet.front();
    const uint64_t draw = Mix64(Mix64(seed ^ last.value) ^ position);
    if (end_chance > 0 && UniformAt(draw, 0) < end_chance) return end;
    return alphabet[draw % alphabet.size()];
  }

  /// Log probability that the "model" gives: a half for what comes next, the rest shared among all others.
  static float Logprob(bool chosen, uint32_t vocab_size) {
    return static_cast<float>(std::log(0.5) - (chosen ? 0 : std::log(vocab_size > 1 ? vocab_size - 1.0 : 1.0)));
  }
};

}  // namespace kvist::exec
