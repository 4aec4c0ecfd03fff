#include "kernels/scalar_math.h"

#include <bit>
#include <cmath>
#include <cstdint>

namespace kvist::kernels {
namespace {

using C = MathConstants;

/// 2^n for n in [-126, 127]; anything for other n (only reached with NaN).
float PowerOfTwo(uint32_t n) {
  return std::bit_cast<float>((n + 127) << 23);
}

inline float ExpInline(float x) {
  // Comparisons are written so that NaN passes through.
  x = C::kExpMax < x ? C::kExpMax : x;
  x = C::kExpMin > x ? C::kExpMin : x;
  float shifted = std::fma(x, C::kLog2E, C::kRound);
  float n = shifted - C::kRound;
  float r = std::fma(n, C::kMinusLn2High, x);
  r = std::fma(n, C::kMinusLn2Low, r);
  float p = std::fma(C::kExp[4], r, C::kExp[3]);  // Written out, so that ExpRow's loop becomes vector code.
  p = std::fma(p, r, C::kExp[2]);
  p = std::fma(p, r, C::kExp[1]);
  p = std::fma(p, r, C::kExp[0]);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  int32_t power = static_cast<int32_t>(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(C::kRound));
  int32_t half = power >> 1;
  return p * PowerOfTwo(static_cast<uint32_t>(half)) *
         PowerOfTwo(static_cast<uint32_t>(power) - static_cast<uint32_t>(half));
}

}  // namespace

float Exp(float x) {
  return ExpInline(x);
}

void ExpRow(const float* x, uint32_t n, float shift, float divisor, float* y) {
  for (uint32_t i = 0; i < n; ++i) y[i] = ExpInline((x[i] - shift) / divisor);
}

float Tanh(float x) {
  float a = std::fabs(x);
  float y;
  if (a < C::kTanhSmall) {
    float z = a * a;
    float p = C::kTanh[4];
    for (int i = 3; i >= 0; --i) p = std::fma(p, z, C::kTanh[i]);
    y = std::fma(a * z, p, a);
  } else {
    y = 1.0f - 2.0f / (ExpInline(2.0f * a) + 1.0f);
  }
  return std::copysign(y, x);
}

}  // namespace kvist::kernels
