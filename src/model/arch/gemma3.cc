#include <cmath>

#include "base/status.h"
#include "model/arch/arch.h"

namespace kvist::model {
namespace {

constexpr uint32_t kGlobalEvery = 6;  ///< Layers 5, 11, 17, ... see everything, the others a window.
constexpr double kLocalRopeBase = 10000.0;
constexpr uint32_t kLayersOf27B = 62;  ///< The one size whose queries are scaled by width / heads.

}  // namespace

// Norm weights in GGUF files already contain the architecture's "+ 1".
absl::StatusOr<Graph> BuildGemma3(const GgufFile& file, const ModelSpec& spec) {
  GraphBuilder g(file, spec);
  KVIST_ASSIGN_OR_RETURN(RopeSpec global, ReadRope(file, spec, /*half_split=*/true));
  RopeSpec local = PlainRope(global.dims, kLocalRopeBase, /*half_split=*/true);
  const uint16_t global_rope = g.AddRope(std::move(global)), local_rope = g.AddRope(std::move(local));
  const uint32_t q_width = spec.heads * spec.key_width, kv_width = spec.kv_heads * spec.key_width;
  const uint32_t scaled_width = spec.layers == kLayersOf27B ? spec.width / spec.heads : spec.key_width;
  const float scale = 1.0f / std::sqrt(static_cast<float>(scaled_width));

  BufferId x = g.Embed("token_embd.weight", std::sqrt(static_cast<float>(spec.width)));
  for (uint32_t layer = 0; layer < spec.layers; ++layer) {
    g.BeginLayer(layer);
    const bool is_global = layer % kGlobalEvery == kGlobalEvery - 1;
    const uint16_t rope = is_global ? global_rope : local_rope;
    BufferId normed = g.Norm(x, ".attn_norm.weight");
    BufferId q = g.Linear(normed, ".attn_q", q_width);
    BufferId k = g.Linear(normed, ".attn_k", kv_width);
    BufferId v = g.Linear(normed, ".attn_v", kv_width);
    g.HeadNorm(q, ".attn_q_norm.weight", spec.heads);
    g.HeadNorm(k, ".attn_k_norm.weight", spec.kv_heads);
    g.Rope(q, spec.heads, rope);
    g.Rope(k, spec.kv_heads, rope);
    BufferId attended = g.Attention(q, k, v, scale, is_global ? 0 : spec.sliding_window);
    g.AddTo(x, g.Norm(g.Linear(attended, ".attn_output", spec.width), ".post_attention_norm.weight"));

    normed = g.Norm(x, ".ffn_norm.weight");
    BufferId gate = g.Linear(normed, ".ffn_gate", spec.ffn_width);
    BufferId up = g.Linear(normed, ".ffn_up", spec.ffn_width);
    BufferId down = g.Linear(g.Gated(gate, up, Activation::kGeluTanh), ".ffn_down", spec.width);
    g.AddTo(x, g.Norm(down, ".post_ffw_norm.weight"));
  }
  g.Output(x, "output_norm.weight", spec.logit_softcap);
  return std::move(g).Finish();
}

}  // namespace kvist::model
