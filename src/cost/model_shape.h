#pragma once

/// @file
/// The numbers of public models by name: all that their cost and size depend on. One table for the cost model and for
/// random models (lab/synth.h). Threads: any. Non-goals: tensor names, vocabularies.

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"

namespace kvist::cost {

/// Counts of features unless said. Source of each row: the configuration published with the model.
struct ModelShape {
  std::string_view name;  ///< e.g. "llama-3.1-8b".
  uint32_t layers = 0, width = 0, ffn_width = 0;
  uint32_t heads = 0, kv_heads = 0, head_width = 0;
  uint32_t vocab_size = 0, context_length = 0;
  bool qk_norm = false;
  bool own_head = true;        ///< Else the embedding is the head.
  uint32_t window = 0;         ///< Tokens that a layer with a window sees; 0 = no layer has one.
  uint32_t window_period = 1;  ///< One of so many layers has none; 1 = all have the window.
  // Mixtures of experts.
  uint32_t experts = 0, experts_used = 0, expert_width = 0;
  uint32_t shared_expert_width = 0;  ///< Of experts that every token visits, together.
  uint32_t dense_layers = 0;         ///< The first ones, without experts.
  bool narrow_experts_only = false;  ///< 4-bit files of it keep everything else in 16 bits.
  // Latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values come from one latent and one rotary key a token.
  uint32_t latent_width = 0, query_latent_width = 0, rope_width = 0, value_width = 0;

  bool is_latent() const { return latent_width > 0; }
  uint32_t expert_layers() const { return experts > 0 ? layers - dense_layers : 0; }
  /// Layers that see the whole context.
  uint32_t full_layers() const {
    if (window == 0) return layers;
    return window_period > 1 ? layers / window_period : 0;
  }
  /// Weights of a layer's attention, of its dense feed-forward part, of one expert, of the whole model.
  double attention_weights() const;
  double ffn_weights() const { return 3.0 * width * ffn_width; }
  double expert_weights() const { return 3.0 * width * expert_width; }
  double weights() const;
};

std::span<const ModelShape> ModelShapes();

/// Errors: NotFound with the names that there are.
absl::StatusOr<ModelShape> FindModelShape(std::string_view name);

}  // namespace kvist::cost
