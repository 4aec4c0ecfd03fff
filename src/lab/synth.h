#pragma once

/// @file
/// Random models of well-known shapes, for speed measurements: the numbers, tensor names, types and vocabulary size of
/// the public model, weights drawn at random. kvist and llama.cpp load them. Same options, same bytes, for any number
/// of threads. Non-goals: text that means anything.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/model_shape.h"
#include "modelfile/gguf_writer.h"

namespace kvist::lab {

/// How the numbers of a model are written down in a file.
struct SynthFormat {
  std::string_view architecture;  ///< GGUF's name.
  std::string_view pre;           ///< Pre-tokeniser of a gpt2 vocabulary; empty = a SentencePiece vocabulary.
  float rope_base, norm_epsilon;
  bool qkv_bias = false, post_norms = false;
  bool llama3_rope = false;  ///< Carries rope_freqs.weight.
  bool fused = false;        ///< attn_qkv, and gate and up in ffn_up.
};

/// What the public model of that name has.
struct SynthShape : cost::ModelShape, SynthFormat {};

std::span<const SynthShape> SynthShapes();

/// Names that SynthOptions::type takes: the tensor types, and the mixtures "q4_k_m" and "q5_k_m".
std::vector<std::string> SynthTypes();

struct SynthOptions {
  std::string shape;
  std::string type = "q8_0";
  uint32_t layers = 0;   ///< 0 = as the shape has.
  uint32_t vocab = 0;    ///< 0 = as the shape has; else at least kSynthVocabMin.
  uint32_t experts = 0;  ///< Of a layer; 0 = as the shape has. Dense shapes take no notice.
  uint64_t seed = 1;
  uint32_t threads = 1;
  /// Told now and then; false ends it (Cancelled).
  std::function<bool(uint64_t bytes_done, uint64_t bytes_total)> progress;
};

inline constexpr uint32_t kSynthVocabMin = 512;

struct SynthResult {
  uint64_t file_bytes = 0, parameters = 0;
  uint32_t tensors = 0;
};

/// Writes the model to `path`, which appears when it is whole. Errors: NotFound for a shape or type that is not known
/// (the message lists them), InvalidArgument for layers, vocab or experts out of range, those of writing.
absl::StatusOr<SynthResult> WriteSynthModel(const SynthOptions& options, const std::string& path);

/// Adds `tokenizer.*`: byte tokens, a few merges, numbered filler tokens and a chat template.
void AddSynthVocabulary(const SynthShape& shape, uint32_t vocab_size, GgufWriter& writer);

}  // namespace kvist::lab
