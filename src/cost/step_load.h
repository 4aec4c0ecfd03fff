#pragma once

/// @file
/// What a step has to compute, summed over its requests: all that its time depends on. Plain data; any thread.

#include <algorithm>
#include <cstdint>

namespace kvist::cost {

struct StepLoad {
  uint32_t tokens = 0;    ///< Rows.
  uint32_t requests = 0;  ///< Slices.
  uint32_t sampled = 0;   ///< Rows that go through the head.
  // Requests of one token, which read their keys once.
  uint32_t decodes = 0;
  double decode_keys = 0;           ///< Sum of their views.
  double decode_keys_windowed = 0;  ///< The same in a layer with a window.
  // The others.
  uint32_t prompts = 0, prompt_tokens = 0;
  double prompt_keys = 0;           ///< Sum of their views.
  double prompt_keys_windowed = 0;  ///< The same in a layer with a window.
  double prompt_pairs = 0;          ///< Queries times the keys that each sees.
  double prompt_pairs_windowed = 0;

  /// @param context  tokens in view before the `count` new ones  @param window  of the model; 0 = none
  void Add(uint32_t count, uint32_t context, bool samples, uint32_t window) {
    const double view = 1.0 * count + context;
    tokens += count;
    requests += 1;
    sampled += samples ? 1 : 0;
    if (count == 1) {
      decodes += 1;
      decode_keys += view;
      decode_keys_windowed += window == 0 ? view : std::min<double>(view, window);
      return;
    }
    prompts += 1;
    prompt_tokens += count;
    prompt_keys += view;
    const double pairs = 1.0 * count * (context + (count + 1) / 2.0);
    prompt_pairs += pairs;
    if (window == 0) {
      prompt_keys_windowed += view;
      prompt_pairs_windowed += pairs;
      return;
    }
    prompt_keys_windowed += std::min<double>(view, 1.0 * window + count);
    const double growing = std::clamp<double>(1.0 * window - context, 0, count);  // Rows that see less than a window.
    prompt_pairs_windowed += growing * (context + (growing + 1) / 2) + (count - growing) * window;
  }
};

}  // namespace kvist::cost
