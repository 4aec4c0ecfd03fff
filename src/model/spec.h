#pragma once

/// @file
/// The numbers that describe a transformer, read from a model file and checked. Immutable plain data.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "modelfile/gguf.h"

namespace kvist::model {

/// Rotary position embedding of one kind of layer.
struct RopeSpec {
  uint32_t dims = 0;             ///< Rotated dimensions of a head; even.
  bool half_split = false;       ///< Pairs (i, i + dims/2) instead of (2i, 2i + 1).
  std::vector<double> inv_freq;  ///< [dims / 2] radians per position, scaling applied.
  /// Empty, or taken instead of inv_freq by an executor that is opened for contexts of more tokens than `long_beyond`.
  std::vector<double> long_inv_freq;
  uint32_t long_beyond = 0;
  double magnitude = 1.0;  ///< Multiplies cos and sin (the attention factor of YaRN and LongRoPE).

  /// For an executor that is opened for contexts of `context_tokens`.
  const std::vector<double>& FrequenciesFor(uint32_t context_tokens) const {
    return !long_inv_freq.empty() && context_tokens > long_beyond ? long_inv_freq : inv_freq;
  }
};

/// What every architecture reads. Token and feature counts are plain numbers.
struct ModelSpec {
  std::string architecture;  ///< "llama", "qwen2", ...
  std::string name;          ///< general.name, or empty.
  uint32_t layers = 0;
  uint32_t width = 0;  ///< embedding_length
  uint32_t ffn_width = 0;
  uint32_t heads = 0, kv_heads = 0;
  uint32_t key_width = 0, value_width = 0;  ///< Of one head.
  uint32_t vocab_size = 0;
  uint32_t context_length = 0;  ///< Trained.
  uint32_t sliding_window = 0;  ///< Tokens a windowed layer sees, itself included; 0 = no windows.
  float norm_epsilon = 0;
  float logit_softcap = 0;  ///< 0 = none.
};

/// Feed-forward layers of which each token goes through a few.
struct ExpertSpec {
  uint32_t count = 0;      ///< In a layer.
  uint32_t used = 0;       ///< By each token; at most count.
  uint32_t width = 0;      ///< Features inside one expert.
  bool normalised = true;  ///< The weights of the used ones are divided by their sum.
  float scale = 1.0f;      ///< Multiplies the weights.
};

inline constexpr uint32_t kExpertsMax = 1024;

/// Reads and checks the common keys. Errors: InvalidArgument naming the key and what is wrong.
absl::StatusOr<ModelSpec> ReadSpec(const GgufFile& file);

/// Rotary frequencies from the file's base and scaling keys (none, linear, YaRN) and, where present, the per-dimension
/// factors of `rope_freqs.weight` (Llama 3) or of `rope_factors_short.weight` and `rope_factors_long.weight`
/// (LongRoPE). Sources: Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", ICLR 2024,
/// section 3; Ding et al., "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens", ICML 2024, and the factors
/// and the magnitude sqrt(1 + ln(context / original) / ln(original)) published with Phi-3.
absl::StatusOr<RopeSpec> ReadRope(const GgufFile& file, const ModelSpec& spec, bool half_split);

/// Experts from the file's keys. Errors: InvalidArgument naming the key; Unimplemented for shared experts, groups of
/// experts and scores other than a softmax.
absl::StatusOr<ExpertSpec> ReadExperts(const GgufFile& file, const ModelSpec& spec);

/// Unscaled frequencies for `base`.
RopeSpec PlainRope(uint32_t dims, double base, bool half_split);

}  // namespace kvist::model
