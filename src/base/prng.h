#pragma once

/// @file
/// Deterministic random numbers. No global state: every user holds its own generator or hashes a counter.

#include <cstdint>

namespace kvist {

/// One round of the SplitMix64 output function: a bijection with full avalanche.
/// Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Uniform double in [0, 1) from a hashed (seed, counter) pair: the same draw whatever happened before it.
constexpr double UniformAt(uint64_t seed, uint64_t counter) {
  return static_cast<double>(Mix64(Mix64(seed) ^ counter) >> 11) * 0x1.0p-53;
}

/// SplitMix64 stream. Copyable; equal seeds give equal streams on every platform.
class Prng {
 public:
  explicit constexpr Prng(uint64_t seed) : state_(seed) {}

  constexpr uint64_t Next() {
    uint64_t out = Mix64(state_);
    state_ += 0x9e3779b97f4a7c15u;
    return out;
  }

  /// Uniform in [0, bound); bias below 2^-32 for bounds under 2^32. REQUIRES: bound > 0.
  constexpr uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }

  /// Uniform in [0, 1).
  constexpr double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t state_;
};

}  // namespace kvist
