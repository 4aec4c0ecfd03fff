#pragma once

/// @file
/// The block that most decoder-only models share: pre-norm attention and pre-norm gated feed-forward, dense or of
/// experts, each added to the residual stream. An architecture names what differs.

#include <optional>

#include "model/graph.h"

namespace kvist::model {

struct DecoderBlock {
  bool half_split_rope = false;
  bool qk_norm = false;
  bool fused = false;     ///< Queries, keys and values are one tensor (attn_qkv), gate and up another (ffn_up).
  bool windowed = false;  ///< Every layer sees a window, where the file has one.
  std::optional<ExpertSpec> experts;  ///< Instead of one feed-forward layer.
  Activation activation = Activation::kSilu;
};

/// Embedding, `spec.layers` blocks, final norm and head.
absl::StatusOr<Graph> BuildDecoder(const GgufFile& file, const ModelSpec& spec, const DecoderBlock& block);

}  // namespace kvist::model
