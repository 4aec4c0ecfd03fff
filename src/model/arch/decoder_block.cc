#include "model/arch/decoder_block.h"

#include <cmath>

#include "base/status.h"

namespace kvist::model {

absl::StatusOr<Graph> BuildDecoder(const GgufFile& file, const ModelSpec& spec, const DecoderBlock& block) {
  GraphBuilder g(file, spec);
  KVIST_ASSIGN_OR_RETURN(RopeSpec rope_spec, ReadRope(file, spec, block.half_split_rope));
  uint16_t rope = g.AddRope(std::move(rope_spec));
  const uint32_t q_width = spec.heads * spec.key_width, kv_width = spec.kv_heads * spec.key_width;
  const float scale = 1.0f / std::sqrt(static_cast<float>(spec.key_width));

  BufferId x = g.Embed("token_embd.weight");
  for (uint32_t layer = 0; layer < spec.layers; ++layer) {
    g.BeginLayer(layer);
    BufferId normed = g.Norm(x, ".attn_norm.weight");
    BufferId q = g.Linear(normed, ".attn_q", q_width);
    BufferId k = g.Linear(normed, ".attn_k", kv_width);
    BufferId v = g.Linear(normed, ".attn_v", kv_width);
    if (block.qk_norm) {
      g.HeadNorm(q, ".attn_q_norm.weight", spec.heads);
      g.HeadNorm(k, ".attn_k_norm.weight", spec.kv_heads);
    }
    g.Rope(q, spec.heads, rope);
    g.Rope(k, spec.kv_heads, rope);
    g.AddTo(x, g.Linear(g.Attention(q, k, v, scale), ".attn_output", spec.width));

    normed = g.Norm(x, ".ffn_norm.weight");
    BufferId gate = g.Linear(normed, ".ffn_gate", spec.ffn_width);
    BufferId up = g.Linear(normed, ".ffn_up", spec.ffn_width);
    g.AddTo(x, g.Linear(g.Gated(gate, up, block.activation), ".ffn_down", spec.width));
  }
  g.Output(x, "output_norm.weight", spec.logit_softcap);
  return std::move(g).Finish();
}

}  // namespace kvist::model
