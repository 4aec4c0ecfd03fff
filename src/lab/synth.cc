#include "lab/synth.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numbers>
#include <optional>

#include "base/check.h"
#include "base/prng.h"
#include "base/status.h"
#include "lab/synth_blocks.h"
#include "model/spec.h"
#include "platform/thread_pool.h"

namespace kvist::lab {
namespace {

constexpr uint32_t kLayersMax = 1024;

SynthShape ShapeOf(std::string_view name, const SynthFormat& format) {
  const absl::StatusOr<cost::ModelShape> numbers = cost::FindModelShape(name);
  KVIST_CHECK(numbers.ok());
  return {*numbers, format};
}

const std::array<SynthShape, 8>& Shapes() {
  constexpr SynthFormat kLlama3{
      .architecture = "llama", .pre = "llama-bpe", .rope_base = 5e5f, .norm_epsilon = 1e-5f, .llama3_rope = true};
  constexpr SynthFormat kQwen3{.architecture = "qwen3", .pre = "qwen2", .rope_base = 1e6f, .norm_epsilon = 1e-6f};
  static const std::array<SynthShape, 8> shapes{
      ShapeOf("smollm2-135m", {.architecture = "llama", .pre = "smollm", .rope_base = 1e5f, .norm_epsilon = 1e-5f}),
      ShapeOf("qwen2.5-0.5b",
              {.architecture = "qwen2", .pre = "qwen2", .rope_base = 1e6f, .norm_epsilon = 1e-6f, .qkv_bias = true}),
      ShapeOf("qwen3-0.6b", kQwen3),
      ShapeOf("qwen3moe-small", {.architecture = "qwen3moe", .pre = "qwen2", .rope_base = 1e6f, .norm_epsilon = 1e-6f}),
      ShapeOf("llama-3.2-1b", kLlama3),
      ShapeOf("llama-3.2-3b", kLlama3),
      ShapeOf("gemma3-270m",
              {.architecture = "gemma3", .pre = "", .rope_base = 1e6f, .norm_epsilon = 1e-6f, .post_norms = true}),
      ShapeOf("phi3-mini",
              {.architecture = "phi3", .pre = "", .rope_base = 1e4f, .norm_epsilon = 1e-5f, .fused = true})};
  return shapes;
}

/// Types of a whole model. Public files keep the table that is embedding and head at once in a finer type.
struct TypeRecipe {
  std::string name;
  DType main;
  DType head;
  DType finer;  ///< Of attn_v and ffn_down in the layers that mixtures treat better; else `main`.
};

constexpr std::array kTypes{DType::kF32,  DType::kF16,    DType::kBF16,   DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,
                            DType::kQ5_0, DType::kQ5_1,   DType::kQ2_K,   DType::kQ3_K, DType::kQ4_K, DType::kQ5_K,
                            DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};

std::vector<TypeRecipe> Recipes() {
  std::vector<TypeRecipe> recipes;
  for (DType dtype : kTypes) {
    const bool plain = InfoOf(dtype).block_elements == 1 || dtype == DType::kQ8_0;
    recipes.push_back({std::string(InfoOf(dtype).name), dtype, plain ? dtype : DType::kQ6_K, dtype});
  }
  recipes.push_back({"q4_k_m", DType::kQ4_K, DType::kQ6_K, DType::kQ6_K});
  recipes.push_back({"q5_k_m", DType::kQ5_K, DType::kQ6_K, DType::kQ6_K});
  return recipes;
}

/// Layers whose attn_v and ffn_down get the finer type: the first and last eighth, and every third between.
bool IsFinerLayer(uint32_t layer, uint32_t layers) {
  const uint32_t eighth = layers / 8;
  return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

/// What stands in for a type whose block does not divide the row, as public files have it.
DType Fitting(DType dtype, uint64_t cols) {
  if (cols % InfoOf(dtype).block_elements == 0) return dtype;
  switch (dtype) {
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kIQ4_XS:
      return Fitting(DType::kIQ4_NL, cols);
    case DType::kQ4_K:
      return Fitting(DType::kQ5_0, cols);
    case DType::kQ5_K:
      return Fitting(DType::kQ5_1, cols);
    case DType::kQ6_K:
      return Fitting(DType::kQ8_0, cols);
    default:
      return DType::kF16;
  }
}

/// Names the tensor's stream of random numbers.
uint64_t KeyOf(uint64_t seed, std::string_view name) {
  uint64_t key = Mix64(seed);
  for (char c : name) key = Mix64(key ^ static_cast<uint8_t>(c));
  return key;
}

template <class Entry>
std::string NamesOf(const Entry& entries) {
  std::string names;
  for (const auto& entry : entries) names += Cat(names.empty() ? "" : ", ", entry.name);
  return names;
}

/// Collects the tensors of one model. The sources that it adds refer to it: it outlives the write.
class ModelWriter {
 public:
  ModelWriter(const SynthOptions& options, const SynthShape& shape, TypeRecipe recipe)
      : options_(options), shape_(shape), recipe_(std::move(recipe)), pool_(options.threads) {}

  void AddMetadata();
  void AddTensors();
  absl::StatusOr<SynthResult> Write(const std::string& path);

 private:
  std::string Key(std::string_view suffix) const { return Cat(shape_.architecture, ".", suffix); }
  /// `experts` > 0: as many matrices, one after another.
  void AddMatrix(const std::string& name, DType wanted, uint32_t cols, uint32_t rows, uint32_t experts = 0);
  /// Values 1 + about 0.1, the f32 norm weights of a trained model; or about `spread` around 0.
  void AddVector(const std::string& name, uint32_t width, float centre, float spread);
  void AddRopeFactors();
  void AddLayer(uint32_t layer);
  void AddAttention(uint32_t layer, DType main, DType finer);
  void AddFeedForward(uint32_t layer, DType main, DType finer);
  static std::string Name(uint32_t layer, std::string_view part) { return Cat("blk.", layer, ".", part); }
  absl::Status Draw(DType dtype, uint64_t key, uint64_t elements, float sigma, const GgufSink& sink);
  absl::Status Advance(uint64_t bytes);

  const SynthOptions& options_;
  const SynthShape& shape_;
  const TypeRecipe recipe_;
  GgufWriter writer_;
  ThreadPool pool_;
  SynthResult result_;
  uint64_t bytes_done_ = 0, bytes_total_ = 0;
  std::vector<std::byte> buffer_;
};

void ModelWriter::AddMetadata() {
  writer_.SetString("general.architecture", shape_.architecture);
  writer_.SetString("general.name", Cat(shape_.name, " synthetic"));
  writer_.SetU32("general.quantization_version", 2);
  writer_.SetU32(Key("block_count"), shape_.layers);
  writer_.SetU32(Key("context_length"), shape_.context_length);
  writer_.SetU32(Key("embedding_length"), shape_.width);
  writer_.SetU32(Key("feed_forward_length"), shape_.ffn_width);
  writer_.SetU32(Key("attention.head_count"), shape_.heads);
  writer_.SetU32(Key("attention.head_count_kv"), shape_.kv_heads);
  writer_.SetU32(Key("attention.key_length"), shape_.head_width);
  writer_.SetU32(Key("attention.value_length"), shape_.head_width);
  writer_.SetU32(Key("rope.dimension_count"), shape_.head_width);
  writer_.SetF32(Key("rope.freq_base"), shape_.rope_base);
  writer_.SetF32(Key("attention.layer_norm_rms_epsilon"), shape_.norm_epsilon);
  if (shape_.window > 0) writer_.SetU32(Key("attention.sliding_window"), shape_.window);
  if (shape_.experts > 0) {
    writer_.SetU32(Key("expert_count"), shape_.experts);
    writer_.SetU32(Key("expert_used_count"), shape_.experts_used);
    writer_.SetU32(Key("expert_feed_forward_length"), shape_.expert_width);
  }
  writer_.SetU32(Key("vocab_size"), shape_.vocab_size);
  AddSynthVocabulary(shape_, shape_.vocab_size, writer_);
}

void ModelWriter::AddMatrix(const std::string& name, DType wanted, uint32_t cols, uint32_t rows, uint32_t experts) {
  const DType dtype = Fitting(wanted, cols);
  const uint64_t elements = uint64_t{cols} * rows * std::max(experts, 1u);
  const float sigma = 1.0f / std::sqrt(static_cast<float>(cols));
  ++result_.tensors;
  result_.parameters += elements;
  bytes_total_ += RowBytes(dtype, elements);
  const uint64_t key = KeyOf(options_.seed, name);
  std::vector<uint64_t> dims{cols, rows};
  if (experts > 0) dims.push_back(experts);
  writer_.AddTensor(name, dtype, dims, [this, dtype, key, elements, sigma](const GgufSink& sink) {
    return Draw(dtype, key, elements, sigma, sink);
  });
}

void ModelWriter::AddVector(const std::string& name, uint32_t width, float centre, float spread) {
  ++result_.tensors;
  result_.parameters += width;
  bytes_total_ += width * sizeof(float);
  const uint64_t key = KeyOf(options_.seed, name);
  const std::array<uint64_t, 1> dims{width};
  writer_.AddTensor(name, DType::kF32, dims, [this, width, centre, spread, key](const GgufSink& sink) -> absl::Status {
    std::vector<float> values(width);
    for (uint32_t i = 0; i < width; ++i) values[i] = centre + spread * static_cast<float>(2 * UniformAt(key, i) - 1);
    KVIST_RETURN_IF_ERROR(sink(std::as_bytes(std::span(values))));
    return Advance(width * sizeof(float));
  });
}

/// Llama 3's stretched wavelengths: unchanged up to 8192 / 4, by 32 from 8192 / 1 on, smooth between.
/// Source: "The Llama 3 Herd of Models", 2024, and the scaling rule published with Llama 3.1.
void ModelWriter::AddRopeFactors() {
  constexpr double kFactor = 32, kLow = 1, kHigh = 4, kTrained = 8192;
  const uint32_t count = shape_.head_width / 2;
  std::vector<float> factors(count);
  for (uint32_t i = 0; i < count; ++i) {
    const double wavelength = 2 * std::numbers::pi * std::pow(shape_.rope_base, 2.0 * i / shape_.head_width);
    const double keep = std::clamp((kTrained / wavelength - kLow) / (kHigh - kLow), 0.0, 1.0);
    factors[i] = static_cast<float>(1 / (keep + (1 - keep) / kFactor));
  }
  ++result_.tensors;
  result_.parameters += count;
  bytes_total_ += count * sizeof(float);
  const std::array<uint64_t, 1> dims{count};
  writer_.AddTensor("rope_freqs.weight", DType::kF32, dims, [this, factors](const GgufSink& sink) -> absl::Status {
    KVIST_RETURN_IF_ERROR(sink(std::as_bytes(std::span(factors))));
    return Advance(factors.size() * sizeof(float));
  });
}

void ModelWriter::AddAttention(uint32_t layer, DType main, DType finer) {
  const uint32_t q_width = shape_.heads * shape_.head_width, kv_width = shape_.kv_heads * shape_.head_width;
  if (shape_.fused) {
    AddMatrix(Name(layer, "attn_qkv.weight"), main, shape_.width, q_width + 2 * kv_width);
  } else {
    AddMatrix(Name(layer, "attn_q.weight"), main, shape_.width, q_width);
    AddMatrix(Name(layer, "attn_k.weight"), main, shape_.width, kv_width);
    AddMatrix(Name(layer, "attn_v.weight"), finer, shape_.width, kv_width);
  }
  AddMatrix(Name(layer, "attn_output.weight"), main, q_width, shape_.width);
  if (shape_.qkv_bias) {
    AddVector(Name(layer, "attn_q.bias"), q_width, 0.0f, 0.1f);
    AddVector(Name(layer, "attn_k.bias"), kv_width, 0.0f, 0.1f);
    AddVector(Name(layer, "attn_v.bias"), kv_width, 0.0f, 0.1f);
  }
  if (shape_.qk_norm) {
    AddVector(Name(layer, "attn_q_norm.weight"), shape_.head_width, 1.0f, 0.1f);
    AddVector(Name(layer, "attn_k_norm.weight"), shape_.head_width, 1.0f, 0.1f);
  }
}

void ModelWriter::AddFeedForward(uint32_t layer, DType main, DType finer) {
  const uint32_t width = shape_.width;
  if (shape_.experts > 0) {
    AddMatrix(Name(layer, "ffn_gate_inp.weight"), DType::kF32, width, shape_.experts);
    AddMatrix(Name(layer, "ffn_gate_exps.weight"), main, width, shape_.expert_width, shape_.experts);
    AddMatrix(Name(layer, "ffn_up_exps.weight"), main, width, shape_.expert_width, shape_.experts);
    AddMatrix(Name(layer, "ffn_down_exps.weight"), finer, shape_.expert_width, width, shape_.experts);
    return;
  }
  if (!shape_.fused) AddMatrix(Name(layer, "ffn_gate.weight"), main, width, shape_.ffn_width);
  AddMatrix(Name(layer, "ffn_up.weight"), main, width, shape_.fused ? 2 * shape_.ffn_width : shape_.ffn_width);
  AddMatrix(Name(layer, "ffn_down.weight"), finer, shape_.ffn_width, width);
}

void ModelWriter::AddLayer(uint32_t layer) {
  const DType main = recipe_.main;
  const DType finer = IsFinerLayer(layer, shape_.layers) ? recipe_.finer : main;
  AddVector(Name(layer, "attn_norm.weight"), shape_.width, 1.0f, 0.1f);
  AddAttention(layer, main, finer);
  if (shape_.post_norms) {
    AddVector(Name(layer, "post_attention_norm.weight"), shape_.width, 1.0f, 0.1f);
    AddVector(Name(layer, "post_ffw_norm.weight"), shape_.width, 1.0f, 0.1f);
  }
  AddVector(Name(layer, "ffn_norm.weight"), shape_.width, 1.0f, 0.1f);
  AddFeedForward(layer, main, finer);
}

void ModelWriter::AddTensors() {
  AddMatrix("token_embd.weight", shape_.own_head ? recipe_.main : recipe_.head, shape_.width, shape_.vocab_size);
  if (shape_.own_head) AddMatrix("output.weight", recipe_.head, shape_.width, shape_.vocab_size);
  AddVector("output_norm.weight", shape_.width, 1.0f, 0.1f);
  if (shape_.llama3_rope) AddRopeFactors();
  for (uint32_t layer = 0; layer < shape_.layers; ++layer) AddLayer(layer);
}

absl::Status ModelWriter::Draw(DType dtype, uint64_t key, uint64_t elements, float sigma, const GgufSink& sink) {
  const uint64_t chunk_bytes = RowBytes(dtype, kSynthChunkElements);
  const uint64_t chunks = (elements + kSynthChunkElements - 1) / kSynthChunkElements;
  const uint64_t tensor_bytes = RowBytes(dtype, elements);
  const uint64_t round_chunks = uint64_t{4} * pool_.threads();
  buffer_.resize(std::max<size_t>(buffer_.size(), round_chunks * chunk_bytes));
  for (uint64_t first = 0; first < chunks; first += round_chunks) {
    const uint64_t begin = first * chunk_bytes;
    const uint64_t bytes = std::min(round_chunks * chunk_bytes, tensor_bytes - begin);
    const std::span<std::byte> round = std::span(buffer_).first(bytes);
    pool_.ForEach(static_cast<uint32_t>((bytes + chunk_bytes - 1) / chunk_bytes), [&](uint32_t i) {
      const uint64_t at = i * chunk_bytes;
      DrawChunk(dtype, key, first + i, sigma, round.subspan(at, std::min(chunk_bytes, bytes - at)));
    });
    KVIST_RETURN_IF_ERROR(sink(round));
    KVIST_RETURN_IF_ERROR(Advance(bytes));
  }
  return absl::OkStatus();
}

absl::Status ModelWriter::Advance(uint64_t bytes) {
  bytes_done_ += bytes;
  if (options_.progress && !options_.progress(bytes_done_, bytes_total_))
    return absl::CancelledError("interrupted; nothing was written");
  return absl::OkStatus();
}

absl::StatusOr<SynthResult> ModelWriter::Write(const std::string& path) {
  KVIST_RETURN_IF_ERROR(writer_.WriteFiles(path).status());
  std::error_code error;
  result_.file_bytes = std::filesystem::file_size(path, error);
  if (error) return absl::InternalError(Cat(path, ": ", error.message()));
  return result_;
}

}  // namespace

std::span<const SynthShape> SynthShapes() {
  return Shapes();
}

std::vector<std::string> SynthTypes() {
  std::vector<std::string> names;
  for (const TypeRecipe& recipe : Recipes()) names.push_back(recipe.name);
  return names;
}

absl::StatusOr<SynthResult> WriteSynthModel(const SynthOptions& options, const std::string& path) {
  const auto found = std::ranges::find(Shapes(), options.shape, &cost::ModelShape::name);
  if (found == Shapes().end())
    return absl::NotFoundError(Cat("no shape is called \"", options.shape, "\"; there are ", NamesOf(Shapes())));
  const std::vector<TypeRecipe> recipes = Recipes();
  const auto recipe = std::ranges::find(recipes, options.type, &TypeRecipe::name);
  if (recipe == recipes.end())
    return absl::NotFoundError(Cat("no type is called \"", options.type, "\"; there are ", NamesOf(recipes)));
  SynthShape shape = *found;
  if (options.layers > kLayersMax)
    return absl::InvalidArgumentError(Cat(options.layers, " layers; at most ", kLayersMax, " are possible"));
  if (options.layers > 0) shape.layers = options.layers;
  if (options.vocab > 0 && (options.vocab < kSynthVocabMin || options.vocab > shape.vocab_size)) {
    return absl::InvalidArgumentError(
        Cat("a vocabulary of ", options.vocab, " tokens; expected ", kSynthVocabMin, " to ", shape.vocab_size));
  }
  if (options.vocab > 0) shape.vocab_size = options.vocab;
  if (options.experts > 0 && shape.experts > 0) {
    if (options.experts < shape.experts_used || options.experts > model::kExpertsMax) {
      return absl::InvalidArgumentError(
          Cat(options.experts, " experts; expected ", shape.experts_used, " to ", model::kExpertsMax));
    }
    shape.experts = options.experts;
  }
  ModelWriter writer(options, shape, *recipe);
  writer.AddMetadata();
  writer.AddTensors();
  return writer.Write(path);
}

}  // namespace kvist::lab
