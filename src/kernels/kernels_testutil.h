#pragma once

/// @file
/// Random inputs and bit comparisons for the kernel tests and benchmarks.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/prng.h"
#include "kernels/dispatch.h"
#include "kernels/kernel_table.h"
#include "tensor/dtype.h"

namespace kvist::kernels::testing {

/// Memory aligned to 64 bytes, filled with 0xa5.
class Bytes {
 public:
  explicit Bytes(size_t size);
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  size_t size_;
  std::unique_ptr<std::byte, decltype(&std::free)> data_;
};

/// What numbers a test row is made of.
enum class Numbers {
  kPlain,   ///< About normal, scale 1.
  kWild,    ///< Any finite magnitude, zeros and subnormals among them.
  kBroken,  ///< As kWild, with infinities and NaN here and there.
};

float Normal(Prng& prng);
std::vector<float> RandomRow(Numbers numbers, size_t n, Prng& prng);

/// Every stored type.
std::span<const DType> AllTypes();

/// A matrix as it lies in a file, [rows][RowBytes].
std::vector<std::byte> RandomMatrix(DType dtype, uint32_t rows, uint32_t cols, Prng& prng);

/// The same from random bits: every pattern of the format, infinite and NaN scales included.
std::vector<std::byte> RandomBits(DType dtype, uint32_t rows, uint32_t cols, Prng& prng);

/// Activations in the form that the type's matmul wants.
struct Activations {
  Bytes bytes;
  size_t stride;
};
Activations MakeActivations(const KernelTable& kernels, DType dtype, const std::vector<float>& x, uint32_t tokens,
                            uint32_t cols);

/// A packed matrix that owns its memory.
struct OwnedMatrix {
  Bytes bytes;
  PackedMatrix matrix;
};
OwnedMatrix Pack(DType dtype, const std::vector<std::byte>& source, uint32_t rows, uint32_t cols);

/// Empty when equal bit by bit (two NaN count as equal), else where the first difference is.
std::string Difference(std::span<const float> got, std::span<const float> expected);

/// Instruction sets of this machine but the reference.
std::vector<Isa> FastIsas();

/// Those whose products with weights of this type have the reference's bits.
std::vector<Isa> FastIsasLikeReference(DType dtype);

}  // namespace kvist::kernels::testing
