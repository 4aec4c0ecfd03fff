#pragma once

/// @file
/// The architectures that kvist runs, one file each. Adding one is its file, a golden test and a row in arch.cc.

#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/graph.h"

namespace kvist::model {

struct Architecture {
  std::string_view name;  ///< general.architecture
  absl::StatusOr<Graph> (*build)(const GgufFile& file, const ModelSpec& spec);
};

/// Llama, SmolLM2, Mistral: rotary pairs side by side, SwiGLU, optional biases.
absl::StatusOr<Graph> BuildLlama(const GgufFile& file, const ModelSpec& spec);
/// Qwen2 and 2.5: biases on q, k and v; half-split rotary pairs.
absl::StatusOr<Graph> BuildQwen2(const GgufFile& file, const ModelSpec& spec);
/// Qwen3: norms on queries and keys instead of biases.
absl::StatusOr<Graph> BuildQwen3(const GgufFile& file, const ModelSpec& spec);
/// Qwen3 with experts in every layer.
absl::StatusOr<Graph> BuildQwen3Moe(const GgufFile& file, const ModelSpec& spec);
/// Gemma 3 text models: five windowed layers to one global one, norms around both halves of a block, GELU.
absl::StatusOr<Graph> BuildGemma3(const GgufFile& file, const ModelSpec& spec);

/// Phi-3, Phi-3.5 and Phi-4: fused projections, half-split rotary pairs of a part of the head, LongRoPE, windows.
absl::StatusOr<Graph> BuildPhi3(const GgufFile& file, const ModelSpec& spec);

std::span<const Architecture> Architectures();

}  // namespace kvist::model
