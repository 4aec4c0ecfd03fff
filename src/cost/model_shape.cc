#include "cost/model_shape.h"

#include <algorithm>
#include <array>

#include "base/status.h"

namespace kvist::cost {
namespace {

/// Llama and Qwen 2.5 have 128 features a head and a head of their own, unless said.
constexpr ModelShape Dense(std::string_view name, uint32_t layers, uint32_t width, uint32_t ffn_width, uint32_t heads,
                           uint32_t kv_heads, uint32_t head_width, uint32_t vocab_size, uint32_t context_length) {
  return {.name = name,
          .layers = layers,
          .width = width,
          .ffn_width = ffn_width,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_width = head_width,
          .vocab_size = vocab_size,
          .context_length = context_length};
}

constexpr ModelShape Tied(ModelShape shape) {
  shape.own_head = false;
  return shape;
}

constexpr ModelShape Normed(ModelShape shape) {
  shape.qk_norm = true;
  return shape;
}

constexpr ModelShape Windowed(ModelShape shape, uint32_t window, uint32_t period) {
  shape.window = window;
  shape.window_period = period;
  return shape;
}

constexpr ModelShape Experts(ModelShape shape, uint32_t experts, uint32_t used, uint32_t width) {
  shape.experts = experts;
  shape.experts_used = used;
  shape.expert_width = width;
  return shape;
}

constexpr ModelShape GptOss(std::string_view name, uint32_t layers, uint32_t experts) {
  ModelShape shape =
      Windowed(Experts(Dense(name, layers, 2880, 2880, 64, 8, 64, 201088, 131072), experts, 4, 2880), 128, 2);
  shape.narrow_experts_only = true;
  return shape;
}

/// GPT-2 and GPT-3: two matrices of four widths in the feed-forward part, written as three of 8 / 3 widths, which have
/// as many weights.
constexpr ModelShape Gpt(std::string_view name, uint32_t layers, uint32_t width, uint32_t heads, uint32_t context) {
  return Tied(Dense(name, layers, width, width * 8 / 3, heads, heads, width / heads, 50257, context));
}

constexpr ModelShape DeepSeekV3() {
  ModelShape shape = Experts(Dense("deepseek-v3", 61, 7168, 18432, 128, 128, 128, 129280, 163840), 256, 8, 2048);
  shape.shared_expert_width = 2048;
  shape.dense_layers = 3;
  shape.latent_width = 512;
  shape.query_latent_width = 1536;
  shape.rope_width = 64;
  shape.value_width = 128;
  return shape;
}

constexpr std::array kShapes{
    Tied(Dense("smollm2-135m", 30, 576, 1536, 9, 3, 64, 49152, 8192)),
    Tied(Dense("qwen2.5-0.5b", 24, 896, 4864, 14, 2, 64, 151936, 32768)),
    Dense("qwen2.5-7b", 28, 3584, 18944, 28, 4, 128, 152064, 131072),
    Dense("qwen2.5-72b", 80, 8192, 29568, 64, 8, 128, 152064, 131072),
    Tied(Normed(Dense("qwen3-0.6b", 28, 1024, 3072, 16, 8, 128, 151936, 40960))),
    Normed(Dense("qwen3-8b", 36, 4096, 12288, 32, 8, 128, 151936, 40960)),
    Normed(Dense("qwen3-14b", 40, 5120, 17408, 40, 8, 128, 151936, 40960)),
    Normed(Dense("qwen3-32b", 64, 5120, 25600, 64, 8, 128, 151936, 40960)),
    Normed(Experts(Dense("qwen3-30b-a3b", 48, 2048, 6144, 32, 4, 128, 151936, 40960), 128, 8, 768)),
    Normed(Experts(Dense("qwen3-235b-a22b", 94, 4096, 12288, 64, 4, 128, 151936, 40960), 128, 8, 1536)),
    // A shape of our own: the attention of qwen3-0.6b, and four experts as wide together as its feed-forward layer.
    Tied(Normed(Experts(Dense("qwen3moe-small", 16, 1024, 3072, 16, 8, 128, 151936, 40960), 32, 4, 768))),
    Tied(Dense("llama-3.2-1b", 16, 2048, 8192, 32, 8, 64, 128256, 131072)),
    Tied(Dense("llama-3.2-3b", 28, 3072, 8192, 24, 8, 128, 128256, 131072)),
    Dense("llama-3.1-8b", 32, 4096, 14336, 32, 8, 128, 128256, 131072),
    Dense("llama-3.1-70b", 80, 8192, 28672, 64, 8, 128, 128256, 131072),
    Dense("llama-3.1-405b", 126, 16384, 53248, 128, 8, 128, 128256, 131072),
    Dense("yi-34b", 60, 7168, 20480, 56, 8, 128, 64000, 200000),
    Gpt("gpt2-small", 12, 768, 12, 1024),
    Gpt("gpt3-xl", 24, 2048, 16, 2048),
    Dense("mistral-7b", 32, 4096, 14336, 32, 8, 128, 32768, 32768),
    Experts(Dense("mixtral-8x7b", 32, 4096, 14336, 32, 8, 128, 32000, 32768), 8, 2, 14336),
    Tied(Normed(Windowed(Dense("gemma3-270m", 18, 640, 2048, 4, 1, 256, 262144, 32768), 512, 6))),
    Windowed(Dense("phi3-mini", 32, 3072, 8192, 32, 32, 96, 32064, 4096), 2047, 1),
    GptOss("gpt-oss-20b", 24, 32),
    GptOss("gpt-oss-120b", 36, 128),
    DeepSeekV3(),
};

}  // namespace

double ModelShape::attention_weights() const {
  if (!is_latent()) return 1.0 * head_width * (2.0 * heads + 2.0 * kv_heads) * width;
  const double query = 1.0 * query_latent_width * (width + heads * (head_width + rope_width));
  const double keys =
      1.0 * width * (latent_width + rope_width) + 1.0 * latent_width * heads * (head_width + value_width);
  return query + keys + 1.0 * heads * value_width * width;
}

double ModelShape::weights() const {
  const double embeddings = (own_head ? 2.0 : 1.0) * vocab_size * width;
  const double routed =
      (experts * expert_weights() + 3.0 * width * shared_expert_width + 1.0 * experts * width) * expert_layers();
  return embeddings + layers * attention_weights() + (layers - expert_layers()) * ffn_weights() + routed;
}

std::span<const ModelShape> ModelShapes() {
  return kShapes;
}

absl::StatusOr<ModelShape> FindModelShape(std::string_view name) {
  const auto found = std::ranges::find(kShapes, name, &ModelShape::name);
  if (found != kShapes.end()) return *found;
  std::string known;
  for (const ModelShape& shape : kShapes) known += Cat(known.empty() ? "" : ", ", shape.name);
  return absl::NotFoundError(Cat("no model shape is called \"", name, "\"; there are ", known));
}

}  // namespace kvist::cost
