#pragma once

/// @file
/// exp and tanh as this program defines them: the same polynomial, with the same roundings, in plain C++ here and in
/// every vector kernel. Pure functions. Non-goals: other libraries' last bit (within 2 ulp of the true value, tested).

#include <cstdint>

namespace kvist::kernels {

/// Constants of the two functions; polynomials are minimax fits for relative error, rounded to f32.
///
/// exp(x):  x to [kExpMin, kExpMax]; n = round(x * log2 e) by adding 1.5 * 2^23; r = x - n ln 2 with two fma;
///          p = 1 + r + r^2 (c0 + c1 r + ... + c4 r^4) by Horner's rule in fma;  (p * 2^(n >> 1)) * 2^(n - (n >> 1)).
/// tanh(x): a = |x|; a < 0.625: fma(a * z, t0 + t1 z + ... + t4 z^4, a), z = a * a;  else 1 - 2 / (exp(2 a) + 1); the
/// sign of x.
struct MathConstants {
  static constexpr float kExpMin = -104.0f;  ///< exp rounds to 0 from here on.
  static constexpr float kExpMax = 89.0f;    ///< exp is infinite from here on.
  static constexpr float kLog2E = 0x1.715476p+0f;
  static constexpr float kRound = 0x1.8p+23f;
  static constexpr float kMinusLn2High = -0x1.62e43p-1f;
  static constexpr float kMinusLn2Low = 0x1.05c61p-29f;
  static constexpr float kExp[5] = {0x1.fffffcp-2f, 0x1.55549p-3f, 0x1.5558f4p-5f, 0x1.123a6cp-7f, 0x1.6a2352p-10f};
  static constexpr float kTanhSmall = 0.625f;
  static constexpr float kTanh[5] = {-0x1.55553ap-2f, 0x1.1107acp-3f, -0x1.b83a1p-5f, 0x1.51c5c2p-6f, -0x1.733f2ap-8f};
};

/// exp(-infinity) = 0, exp(NaN) = NaN; overflows to infinity above 88.72, gradual underflow to 0.
float Exp(float x);

/// y[i] = Exp((x[i] - shift) / divisor): the weights of a softmax. In place allowed.
void ExpRow(const float* x, uint32_t n, float shift, float divisor, float* y);

/// tanh(+-infinity) = +-1, tanh(NaN) = NaN, tanh(-0) = -0.
float Tanh(float x);

}  // namespace kvist::kernels
