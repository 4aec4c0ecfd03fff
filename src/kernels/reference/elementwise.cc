#include <cmath>

#include "kernels/reference/reference.h"
#include "kernels/scalar_math.h"

namespace kvist::kernels {
namespace reference {

void RmsNorm(const float* x, const float* weight, uint32_t n, float eps, float* y) {
  float lanes[16] = {};
  for (uint32_t i = 0; i < n; ++i) lanes[i % 16] = std::fma(x[i], x[i], lanes[i % 16]);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
  }
  float r = 1.0f / std::sqrt(lanes[0] / static_cast<float>(n) + eps);
  for (uint32_t i = 0; i < n; ++i) y[i] = weight == nullptr ? x[i] * r : x[i] * r * weight[i];
}

void Rope(float* x, uint32_t heads, uint32_t head_dim, uint32_t rotary_dims, const float* cos, const float* sin,
          RopePairs pairs) {
  uint32_t half = rotary_dims / 2;
  for (uint32_t h = 0; h < heads; ++h, x += head_dim) {
    for (uint32_t i = 0; i < half; ++i) {
      float& first = pairs == RopePairs::kHalves ? x[i] : x[2 * i];
      float& second = pairs == RopePairs::kHalves ? x[i + half] : x[2 * i + 1];
      float a = first, b = second;
      first = std::fma(a, cos[i], -(b * sin[i]));
      second = std::fma(b, cos[i], a * sin[i]);
    }
  }
}

void SiluMul(const float* gate, const float* up, uint32_t n, float* y) {
  for (uint32_t i = 0; i < n; ++i) y[i] = gate[i] / (1.0f + Exp(-gate[i])) * up[i];
}

void GeluTanhMul(const float* gate, const float* up, uint32_t n, float* y) {
  for (uint32_t i = 0; i < n; ++i) {
    float g = gate[i];
    float inner = 0.7978845608f * std::fma(0.044715f * (g * g), g, g);
    y[i] = 0.5f * g * (1.0f + Tanh(inner)) * up[i];
  }
}

void Add(const float* a, const float* b, uint32_t n, float* y) {
  for (uint32_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

void Scale(const float* x, float factor, uint32_t n, float* y) {
  for (uint32_t i = 0; i < n; ++i) y[i] = x[i] * factor;
}

void Softcap(const float* x, float cap, uint32_t n, float* y) {
  for (uint32_t i = 0; i < n; ++i) y[i] = cap * Tanh(x[i] / cap);
}

}  // namespace reference

const KernelTable kReferenceKernels{
    .isa = Isa::kReference,
    .quantize_rows = reference::QuantizeRows,
    .matmul = reference::MatMul,
    .rms_norm = reference::RmsNorm,
    .rope = reference::Rope,
    .silu_mul = reference::SiluMul,
    .gelu_tanh_mul = reference::GeluTanhMul,
    .add = reference::Add,
    .scale = reference::Scale,
    .softcap = reference::Softcap,
    .store_key = reference::StoreKey,
    .store_value = reference::StoreValue,
    .attend_query_bytes = reference::AttendQueryBytes,
    .attend_prepare = reference::AttendPrepare,
    .attend = reference::Attend,
    .attend_merge = reference::AttendMerge,
    .attend_finish = reference::AttendFinish,
};

}  // namespace kvist::kernels
