#pragma once

/// @file
/// A matrix product of oneDNN on one thread: y = x W^T for a weight matrix [rows][cols], brought into the form that the
/// library likes best before. Threads: one at a time. Errors abort with oneDNN's message.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace kvist::bench {

enum class OneDnnType { kF32, kBF16, kInt8 };

/// The most that oneDNN uses of this machine, e.g. "avx512_core_amx".
std::string OneDnnIsa();

class OneDnnProduct {
 public:
  /// @param weights  [rows][cols] in `type`.
  OneDnnProduct(OneDnnType type, uint32_t rows, uint32_t cols, uint32_t tokens, std::span<const std::byte> weights);
  ~OneDnnProduct();
  OneDnnProduct(const OneDnnProduct&) = delete;
  OneDnnProduct& operator=(const OneDnnProduct&) = delete;

  /// @param x  [tokens][cols] in the type; @param y  f32 [tokens][rows]
  void Run(const std::byte* x, float* y);

  /// Bytes of the weights in the library's form.
  size_t weight_bytes() const;
  /// What the library runs, e.g. "brg:avx512_core_amx".
  std::string implementation() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvist::bench
