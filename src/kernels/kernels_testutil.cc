#include "kernels/kernels_testutil.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "kernels/packed.h"
#include "tensor/quantize.h"

namespace kvist::kernels::testing {

Bytes::Bytes(size_t size)
    : size_(size), data_(static_cast<std::byte*>(std::aligned_alloc(64, (size + 63) / 64 * 64 + 64)), &std::free) {
  KVIST_CHECK(data_ != nullptr);
  std::memset(data_.get(), 0xa5, size);
}

float Normal(Prng& prng) {
  double sum = 0;
  for (int i = 0; i < 12; ++i) sum += prng.Uniform();
  return static_cast<float>(sum - 6);
}

std::vector<float> RandomRow(Numbers numbers, size_t n, Prng& prng) {
  std::vector<float> row(n);
  for (float& x : row) {
    x = Normal(prng);
    if (numbers == Numbers::kPlain) continue;
    uint64_t kind = prng.Below(64);
    if (kind < 24) {
      auto bits = static_cast<uint32_t>(prng.Next());
      x = std::bit_cast<float>((bits & 0x7f800000) == 0x7f800000 ? bits & 0x807fffff : bits);
    } else if (kind < 28) {
      x = kind % 2 == 0 ? 0.0f : -0.0f;
    } else if (kind == 28) {
      x = std::numeric_limits<float>::max();
    } else if (numbers == Numbers::kBroken && kind == 29) {
      x = prng.Below(2) == 0 ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
    } else if (numbers == Numbers::kBroken && kind == 30) {
      x = std::numeric_limits<float>::quiet_NaN();
    }
  }
  return row;
}

std::span<const DType> AllTypes() {
  static constexpr std::array kTypes{DType::kF32,  DType::kF16,    DType::kBF16,   DType::kQ8_0,
                                     DType::kQ4_0, DType::kQ4_1,   DType::kQ5_0,   DType::kQ5_1,
                                     DType::kQ4_K, DType::kQ5_K,   DType::kQ6_K,   DType::kQ2_K,
                                     DType::kQ3_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};
  return kTypes;
}

std::vector<std::byte> RandomMatrix(DType dtype, uint32_t rows, uint32_t cols, Prng& prng) {
  size_t row_bytes = RowBytes(dtype, cols);
  std::vector<std::byte> out(rows * row_bytes);
  for (uint32_t r = 0; r < rows; ++r) {
    QuantizeRow(dtype, RandomRow(Numbers::kPlain, cols, prng).data(), cols, out.data() + r * row_bytes);
  }
  return out;
}

std::vector<std::byte> RandomBits(DType dtype, uint32_t rows, uint32_t cols, Prng& prng) {
  std::vector<std::byte> out(rows * RowBytes(dtype, cols));
  for (std::byte& b : out) b = static_cast<std::byte>(prng.Next());
  return out;
}

Activations MakeActivations(const KernelTable& kernels, DType dtype, const std::vector<float>& x, uint32_t tokens,
                            uint32_t cols) {
  if (UsesQuantizedActivations(dtype)) {
    Activations out{Bytes(tokens * ActivationRowBytes(cols)), ActivationRowBytes(cols)};
    kernels.quantize_rows(x.data(), cols, tokens, cols, out.bytes.data());
    return out;
  }
  Activations out{Bytes(x.size() * sizeof(float)), cols * sizeof(float)};
  std::memcpy(out.bytes.data(), x.data(), out.bytes.size());
  return out;
}

OwnedMatrix Pack(DType dtype, const std::vector<std::byte>& source, uint32_t rows, uint32_t cols) {
  OwnedMatrix out{Bytes(PackedBytes(dtype, rows, cols)), {dtype, rows, cols, nullptr}};
  PackRowGroups(dtype, source.data(), rows, cols, 0, RowGroups(rows), out.bytes.data());
  out.matrix.data = out.bytes.data();
  return out;
}

std::string Difference(std::span<const float> got, std::span<const float> expected) {
  if (got.size() != expected.size()) return "sizes differ";
  for (size_t i = 0; i < got.size(); ++i) {
    auto a = std::bit_cast<uint32_t>(got[i]), b = std::bit_cast<uint32_t>(expected[i]);
    if (a != b && !(std::isnan(got[i]) && std::isnan(expected[i]))) {
      return absl::StrFormat("element %d is %.9g (%08x), expected %.9g (%08x)", i, got[i], a, expected[i], b);
    }
  }
  return "";
}

std::vector<Isa> FastIsas() {
  std::vector<Isa> isas;
  for (Isa isa : SupportedIsas()) {
    if (isa != Isa::kReference) isas.push_back(isa);
  }
  return isas;
}

std::vector<Isa> FastIsasLikeReference(DType dtype) {
  std::vector<Isa> isas = FastIsas();
  const bool halves = dtype == DType::kF16 || dtype == DType::kBF16;
  std::erase_if(isas, [halves](Isa isa) { return halves && BitsOf(isa) != Isa::kReference; });
  return isas;
}

}  // namespace kvist::kernels::testing
