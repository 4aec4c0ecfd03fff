#include "model/arch/decoder_block.h"

#include <cmath>

#include "base/status.h"

namespace kvist::model {
namespace {

struct Projections {
  BufferId q, k, v;
};

Projections Project(GraphBuilder& g, BufferId x, uint32_t q_width, uint32_t kv_width, bool fused) {
  if (!fused)
    return {g.Linear(x, ".attn_q", q_width), g.Linear(x, ".attn_k", kv_width), g.Linear(x, ".attn_v", kv_width)};
  const uint32_t rows = q_width + 2 * kv_width;
  return {g.LinearRows(x, ".attn_qkv", 0, q_width, rows), g.LinearRows(x, ".attn_qkv", q_width, kv_width, rows),
          g.LinearRows(x, ".attn_qkv", q_width + kv_width, kv_width, rows)};
}

BufferId FeedForward(GraphBuilder& g, BufferId x, const ModelSpec& spec, const DecoderBlock& block) {
  if (block.experts) return g.Experts(x, *block.experts, block.activation);
  const uint32_t width = spec.ffn_width;
  BufferId gate = block.fused ? g.LinearRows(x, ".ffn_up", 0, width, 2 * width) : g.Linear(x, ".ffn_gate", width);
  BufferId up = block.fused ? g.LinearRows(x, ".ffn_up", width, width, 2 * width) : g.Linear(x, ".ffn_up", width);
  return g.Linear(g.Gated(gate, up, block.activation), ".ffn_down", spec.width);
}

}  // namespace

absl::StatusOr<Graph> BuildDecoder(const GgufFile& file, const ModelSpec& spec, const DecoderBlock& block) {
  GraphBuilder g(file, spec);
  if (const std::string key = Cat(spec.architecture, ".expert_count"); !block.experts && file.Has(key)) {
    KVIST_ASSIGN_OR_RETURN(uint32_t count, file.GetU32(key));
    if (count > 0) {
      return absl::UnimplementedError(
          Cat(file.label(), ": ", key, " is ", count, "; experts of this architecture are not supported"));
    }
  }
  KVIST_ASSIGN_OR_RETURN(RopeSpec rope_spec, ReadRope(file, spec, block.half_split_rope));
  uint16_t rope = g.AddRope(std::move(rope_spec));
  const uint32_t q_width = spec.heads * spec.key_width, kv_width = spec.kv_heads * spec.key_width;
  const float scale = 1.0f / std::sqrt(static_cast<float>(spec.key_width));
  const uint32_t window = block.windowed ? spec.sliding_window : 0;

  BufferId x = g.Embed("token_embd.weight");
  for (uint32_t layer = 0; layer < spec.layers; ++layer) {
    g.BeginLayer(layer);
    BufferId normed = g.Norm(x, ".attn_norm.weight");
    const auto [q, k, v] = Project(g, normed, q_width, kv_width, block.fused);
    if (block.qk_norm) {
      g.HeadNorm(q, ".attn_q_norm.weight", spec.heads);
      g.HeadNorm(k, ".attn_k_norm.weight", spec.kv_heads);
    }
    g.Rope(q, spec.heads, rope);
    g.Rope(k, spec.kv_heads, rope);
    g.AddTo(x, g.Linear(g.Attention(q, k, v, scale, window), ".attn_output", spec.width));
    g.AddTo(x, FeedForward(g, g.Norm(x, ".ffn_norm.weight"), spec, block));
  }
  g.Output(x, "output_norm.weight", spec.logit_softcap);
  return std::move(g).Finish();
}

}  // namespace kvist::model
