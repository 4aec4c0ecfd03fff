#include "kernels/packed.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/packed_layout.h"
#include "tensor/half.h"
#include "tensor/quant_blocks.h"

namespace kvist::kernels {
namespace {

constexpr size_t kLine = 64;

constexpr size_t RoundUpToLine(size_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

/// Calls `visit` with the PackedUnit of a quantised type.
template <class Visit>
decltype(auto) VisitUnit(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::kQ8_0:
      return visit(PackedUnit<DType::kQ8_0>{});
    case DType::kQ5_0:
      return visit(PackedUnit<DType::kQ5_0>{});
    case DType::kQ4_0:
      return visit(PackedUnit<DType::kQ4_0>{});
    case DType::kQ5_1:
      return visit(PackedUnit<DType::kQ5_1>{});
    case DType::kQ4_1:
      return visit(PackedUnit<DType::kQ4_1>{});
    case DType::kQ5_K:
      return visit(PackedUnit<DType::kQ5_K>{});
    case DType::kQ4_K:
      return visit(PackedUnit<DType::kQ4_K>{});
    case DType::kQ6_K:
      return visit(PackedUnit<DType::kQ6_K>{});
    case DType::kQ3_K:
      return visit(PackedUnit<DType::kQ3_K>{});
    case DType::kQ2_K:
      return visit(PackedUnit<DType::kQ2_K>{});
    case DType::kIQ4_NL:
      return visit(PackedUnit<DType::kIQ4_NL>{});
    case DType::kIQ4_XS:
      return visit(PackedUnit<DType::kIQ4_XS>{});
    case DType::kMXFP4:
      return visit(PackedUnit<DType::kMXFP4>{});
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
  }
  CheckFailed(__FILE__, __LINE__, "quantised dtype");
}

// Integers(block, j, u): the stored integers, unsigned, of columns 32 j .. 32 j + 31 of a stored block.

void Integers(const BlockQ8_0& block, uint32_t, uint8_t u[32]) {
  for (int i = 0; i < 32; ++i) u[i] = static_cast<uint8_t>(block.q[i]) ^ 0x80;
}

void SplitNibbles(const uint8_t q[16], uint8_t u[32]) {
  for (int i = 0; i < 16; ++i) u[i] = q[i] & 15;
  for (int i = 0; i < 16; ++i) u[i + 16] = q[i] >> 4;
}

void AddFifthBits(const uint8_t high[4], uint8_t u[32]) {
  for (int i = 0; i < 32; ++i) u[i] = static_cast<uint8_t>(u[i] | (high[i / 8] >> (i % 8) & 1) << 4);
}

void Integers(const BlockQ4_0& block, uint32_t, uint8_t u[32]) {
  SplitNibbles(block.q, u);
}
void Integers(const BlockQ4_1& block, uint32_t, uint8_t u[32]) {
  SplitNibbles(block.q, u);
}

void Integers(const BlockIQ4_NL& block, uint32_t, uint8_t u[32]) {
  SplitNibbles(block.q, u);
}
void Integers(const BlockIQ4_XS& block, uint32_t j, uint8_t u[32]) {
  SplitNibbles(block.q + j * 16, u);
}
void Integers(const BlockMXFP4& block, uint32_t, uint8_t u[32]) {
  SplitNibbles(block.q, u);
}

void Integers(const BlockQ5_0& block, uint32_t, uint8_t u[32]) {
  SplitNibbles(block.q, u);
  AddFifthBits(block.high, u);
}

void Integers(const BlockQ5_1& block, uint32_t, uint8_t u[32]) {
  SplitNibbles(block.q, u);
  AddFifthBits(block.high, u);
}

/// The two bits of columns 32 j ...
void SplitPairs(const uint8_t q[64], uint32_t j, uint8_t u[32]) {
  for (uint32_t i = 0; i < 32; ++i) u[i] = q[j / 4 * 32 + i] >> (j % 4 * 2) & 3;
}

void Integers(const BlockQ2_K& block, uint32_t j, uint8_t u[32]) {
  SplitPairs(block.q, j, u);
}

void Integers(const BlockQ3_K& block, uint32_t j, uint8_t u[32]) {
  SplitPairs(block.low, j, u);
  for (int i = 0; i < 32; ++i) u[i] = static_cast<uint8_t>(u[i] | (block.high[i] >> j & 1) << 2);
}

void Integers(const BlockQ4_K& block, uint32_t j, uint8_t u[32]) {
  const uint8_t* q = block.q + j / 2 * 32;
  uint32_t shift = j % 2 * 4;
  for (int i = 0; i < 32; ++i) u[i] = q[i] >> shift & 15;
}

void Integers(const BlockQ5_K& block, uint32_t j, uint8_t u[32]) {
  const uint8_t* q = block.q + j / 2 * 32;
  uint32_t shift = j % 2 * 4;
  for (int i = 0; i < 32; ++i) u[i] = static_cast<uint8_t>((q[i] >> shift & 15) | (block.high[i] >> j & 1) << 4);
}

void Integers(const BlockQ6_K& block, uint32_t j, uint8_t u[32]) {
  const uint8_t* low = block.low + j / 4 * 64 + j % 2 * 32;
  const uint8_t* high = block.high + j / 4 * 32;
  uint32_t low_shift = j % 4 / 2 * 4, high_shift = j % 4 * 2;
  for (int i = 0; i < 32; ++i) {
    u[i] = static_cast<uint8_t>((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4);
  }
}

// Scales(block, b, row, unit): writes into a header of zeros what it keeps of a stored block that starts at its block
// b.

void StoreHalf(std::byte* header, uint32_t index, uint16_t value) {
  std::memcpy(header + index * sizeof(value), &value, sizeof(value));
}

template <class Block>
concept HasMin = requires(Block block) { block.m; };

template <class Block>
void Scales(const Block& block, uint32_t b, uint32_t row, std::byte* unit) {
  StoreHalf(unit, b * kRowGroup + row, block.d);
  if constexpr (HasMin<Block>) StoreHalf(unit, kRowGroup + row, block.m);
}

template <class Block>
void KScales(const Block& block, uint32_t row, std::byte* unit) {
  StoreHalf(unit, row, block.d);
  StoreHalf(unit, kRowGroup + row, block.dmin);
  for (uint32_t j = 0; j < 8; ++j) {
    ScaleMin sm = KScaleMin(block.scales, j);
    unit[64 + j * kRowGroup + row] = std::byte{sm.scale};
    unit[192 + j * kRowGroup + row] = std::byte{sm.min};
  }
}

void Scales(const BlockQ4_K& block, uint32_t, uint32_t row, std::byte* unit) {
  KScales(block, row, unit);
}
void Scales(const BlockQ5_K& block, uint32_t, uint32_t row, std::byte* unit) {
  KScales(block, row, unit);
}

void Scales(const BlockQ6_K& block, uint32_t, uint32_t row, std::byte* unit) {
  StoreHalf(unit, row, block.d);
  for (uint32_t j = 0; j < 16; ++j) {
    unit[64 + j * kRowGroup + row] = std::byte{static_cast<uint8_t>(block.scales[j])};
  }
}

void Scales(const BlockQ2_K& block, uint32_t, uint32_t row, std::byte* unit) {
  StoreHalf(unit, row, block.d);
  StoreHalf(unit, kRowGroup + row, block.dmin);
  for (uint32_t j = 0; j < 16; ++j) unit[64 + j * kRowGroup + row] = std::byte{block.scales[j]};
}

void Scales(const BlockQ3_K& block, uint32_t, uint32_t row, std::byte* unit) {
  StoreHalf(unit, row, block.d);
  for (uint32_t j = 0; j < 16; ++j) {
    const uint32_t scale = static_cast<uint32_t>(Q3Scale(block, j) + 32);
    unit[64 + j / 2 * kRowGroup + row] |= static_cast<std::byte>((scale & 15) << (j % 2 * 4));
    unit[192 + j / 4 * kRowGroup + row] |= static_cast<std::byte>(scale >> 4 << (j % 4 * 2));
  }
}

void Scales(const BlockIQ4_XS& block, uint32_t, uint32_t row, std::byte* unit) {
  StoreHalf(unit, row, block.d);
  for (uint32_t j = 0; j < 8; ++j) {
    const uint32_t scale = static_cast<uint32_t>(IQ4Scale(block, j) + 32);
    unit[32 + j / 4 * kRowGroup + row] |= static_cast<std::byte>(scale >> 4 << (j % 4 * 2));
    unit[64 + j / 2 * kRowGroup + row] |= static_cast<std::byte>((scale & 15) << (j % 2 * 4));
  }
}

void Scales(const BlockMXFP4& block, uint32_t b, uint32_t row, std::byte* unit) {
  unit[b * kRowGroup + row] = std::byte{block.e};
}

/// Bits `shift` and the next of each integer: bits 2 (j % 4) of vector j / 4 of two.
void CompressPairs(const uint8_t vectors[512], int shift, uint8_t* out) {
  for (int i = 0; i < 128; ++i) {
    int plane = 0;
    for (int j = 0; j < 4; ++j) plane |= (vectors[256 * (i / 64) + 64 * j + i % 64] >> shift & 3) << (2 * j);
    out[i] = static_cast<uint8_t>(plane);
  }
}

/// Bit `shift` of each integer: bit j of one vector.
void CompressSingles(const uint8_t vectors[512], int shift, uint8_t* out) {
  for (int i = 0; i < 64; ++i) {
    int plane = 0;
    for (int j = 0; j < 8; ++j) plane |= (vectors[64 * j + i] >> shift & 1) << j;
    out[i] = static_cast<uint8_t>(plane);
  }
}

/// The 8 vectors of a block, one byte per integer, to their stored form.
template <uint32_t bits>
void CompressBlock(const uint8_t vectors[512], std::byte* ints) {
  uint8_t* out = reinterpret_cast<uint8_t*>(ints);
  if constexpr (bits == 8) {
    std::memcpy(out, vectors, 512);
  } else if constexpr (bits >= 4) {
    for (int i = 0; i < 256; ++i) out[i] = static_cast<uint8_t>((vectors[i] & 15) | vectors[i + 256] << 4);
    if constexpr (bits == 5) CompressSingles(vectors, 4, out + 256);
    if constexpr (bits == 6) CompressPairs(vectors, 4, out + 256);
  } else {
    CompressPairs(vectors, 0, out);
    if constexpr (bits == 3) CompressSingles(vectors, 2, out + 128);
  }
}

/// The inverse for one integer.
uint8_t PackedInteger(const std::byte* ints, uint32_t bits, uint32_t row, uint32_t column) {
  const uint8_t* in = reinterpret_cast<const uint8_t*>(ints);
  const uint32_t j = column / 4, lane = row * 4 + column % 4;
  if (bits == 8) return in[64 * j + lane];
  const auto pair = [&](uint32_t at) { return static_cast<uint32_t>(in[at + 64 * (j / 4) + lane] >> (j % 4 * 2) & 3); };
  const auto single = [&](uint32_t at) { return static_cast<uint32_t>(in[at + lane] >> j & 1); };
  if (bits < 4) return static_cast<uint8_t>(pair(0) | (bits == 3 ? single(128) << 2 : 0));
  const uint32_t low = in[64 * (j % 4) + lane] >> (j / 4 * 4) & 15;
  const uint32_t high = bits == 5 ? single(256) : bits == 6 ? pair(256) : 0;
  return static_cast<uint8_t>(low | high << 4);
}

/// @param source  the group's first row.
template <class Block, class Unit>
void PackQuantizedGroup(const std::byte* source, size_t row_bytes, uint32_t rows, uint32_t cols, std::byte* out) {
  constexpr uint32_t kStoredColumns = Unit::kColumns < kSuperColumns ? kBlockColumns : kSuperColumns;
  uint8_t vectors[512] = {};  // Lanes of missing rows stay zero.
  for (uint32_t first = 0; first < cols; first += Unit::kColumns, out += Unit::kBytes) {
    std::memset(out, 0, Unit::kBytes);
    for (uint32_t b = 0; b < Unit::kBlocks && first + b * 32 < cols; ++b) {
      uint32_t column = first + b * 32;
      for (uint32_t row = 0; row < rows; ++row) {
        const std::byte* stored = source + row * row_bytes + column / kStoredColumns * sizeof(Block);
        const Block& block = *reinterpret_cast<const Block*>(stored);
        if (column % kStoredColumns == 0) Scales(block, b, row, out);
        uint8_t u[32];
        Integers(block, column % kStoredColumns / 32, u);
        for (uint32_t j = 0; j < kBlockVectors; ++j) std::memcpy(vectors + 64 * j + 4 * row, u + 4 * j, 4);
      }
      CompressBlock<Unit::kBits>(vectors, out + Unit::kHeaderBytes + b * Unit::kBlockBytes);
    }
  }
}

template <size_t element_bytes>
void PackFloatGroup(const std::byte* source, size_t row_bytes, uint32_t rows, uint32_t cols, std::byte* out) {
  size_t used = size_t{cols} * kRowGroup * element_bytes;
  if (rows < kRowGroup) std::memset(out, 0, used);
  std::memset(out + used, 0, RoundUpToLine(used) - used);
  for (uint32_t row = 0; row < rows; ++row) {
    const std::byte* in = source + row * row_bytes;
    for (uint32_t k = 0; k < cols; ++k) {
      std::memcpy(out + (size_t{k} * kRowGroup + row) * element_bytes, in + k * element_bytes, element_bytes);
    }
  }
}

void PackGroup(DType dtype, const std::byte* source, size_t row_bytes, uint32_t rows, uint32_t cols, std::byte* out) {
  switch (dtype) {
    case DType::kF32:
      return PackFloatGroup<4>(source, row_bytes, rows, cols, out);
    case DType::kF16:
    case DType::kBF16:
      return PackFloatGroup<2>(source, row_bytes, rows, cols, out);
#define KVIST_PACK(type) \
  case DType::k##type:   \
    return PackQuantizedGroup<Block##type, PackedUnit<DType::k##type>>(source, row_bytes, rows, cols, out)
      KVIST_PACK(Q8_0);
      KVIST_PACK(Q5_0);
      KVIST_PACK(Q4_0);
      KVIST_PACK(Q5_1);
      KVIST_PACK(Q4_1);
      KVIST_PACK(Q5_K);
      KVIST_PACK(Q4_K);
      KVIST_PACK(Q6_K);
      KVIST_PACK(Q3_K);
      KVIST_PACK(Q2_K);
      KVIST_PACK(IQ4_NL);
      KVIST_PACK(IQ4_XS);
      KVIST_PACK(MXFP4);
#undef KVIST_PACK
  }
  CheckFailed(__FILE__, __LINE__, "known dtype");
}

int SignedOf(std::byte byte) {
  return (static_cast<int>(byte) ^ 0x80) - 0x80;
}

float LoadHalf(const std::byte* header, uint32_t index) {
  uint16_t bits;
  std::memcpy(&bits, header + index * sizeof(bits), sizeof(bits));
  return F16ToF32(bits);
}

}  // namespace

bool UsesQuantizedActivations(DType dtype) {
  return dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16;
}

absl::Status CheckPackable(DType dtype, uint32_t rows, uint32_t cols) {
  const DTypeInfo& info = InfoOf(dtype);
  if (rows == 0 || cols == 0 || cols > kColumnsMax || cols % info.block_elements != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a matrix of ", rows, " rows and ", cols, " columns of type ", std::string(info.name),
                     ": rows must be at least 1, columns a multiple of ", info.block_elements, " up to ", kColumnsMax));
  }
  return absl::OkStatus();
}

size_t GroupBytes(DType dtype, uint32_t cols) {
  if (!UsesQuantizedActivations(dtype)) return RoundUpToLine(RowBytes(dtype, cols) * kRowGroup);
  return VisitUnit(dtype, [cols](auto unit) {
    using Unit = decltype(unit);
    return size_t{(cols + Unit::kColumns - 1) / Unit::kColumns} * Unit::kBytes;
  });
}

size_t PackedBytes(DType dtype, uint32_t rows, uint32_t cols) {
  return RowGroups(rows) * GroupBytes(dtype, cols);
}

size_t ActivationRowBytes(uint32_t cols) {
  return RoundUpToLine(RoundUpToLine(cols) + cols / 32 * sizeof(ActivationMeta));
}

void PackRowGroups(DType dtype, const std::byte* source, uint32_t rows, uint32_t cols, uint32_t group_begin,
                   uint32_t group_end, std::byte* packed) {
  KVIST_CHECK(CheckPackable(dtype, rows, cols).ok() && group_end <= RowGroups(rows));
  size_t row_bytes = RowBytes(dtype, cols), group_bytes = GroupBytes(dtype, cols);
  for (uint32_t group = group_begin; group < group_end; ++group) {
    uint32_t first = group * kRowGroup;
    PackGroup(dtype, source + first * row_bytes, row_bytes, std::min(kRowGroup, rows - first), cols,
              packed + group * group_bytes);
  }
}

void ReadPackedBlock(const PackedMatrix& matrix, uint32_t row, uint32_t block, PackedBlock& out) {
  VisitUnit(matrix.dtype, [&](auto unit_type) {
    using Unit = decltype(unit_type);
    const std::byte* unit = matrix.data + row / kRowGroup * GroupBytes(matrix.dtype, matrix.cols) +
                            size_t{block / Unit::kBlocks} * Unit::kBytes;
    uint32_t r = row % kRowGroup, b = block % Unit::kBlocks;
    const std::byte* ints = unit + Unit::kHeaderBytes + b * Unit::kBlockBytes;
    for (uint32_t i = 0; i < 32; ++i) {
      const uint8_t stored = PackedInteger(ints, Unit::kBits, r, i);
      if constexpr (Unit::kCodes == UnitCodes::kNone) {
        out.q[i] = static_cast<int16_t>(stored - static_cast<int>(Unit::kOffset));
      } else {
        out.q[i] = Unit::kValues[stored];
      }
    }
    out.scale[0] = out.scale[1] = 1;
    out.mins = Unit::kMins;
    if constexpr (Unit::kHeader == UnitHeader::kD) {
      out.d = LoadHalf(unit, b * kRowGroup + r);
    } else if constexpr (Unit::kHeader == UnitHeader::kDM) {
      out.d = LoadHalf(unit, r);
      out.min[0] = LoadHalf(unit, kRowGroup + r);
    } else if constexpr (Unit::kHeader == UnitHeader::kScaleMin) {
      out.d = LoadHalf(unit, r) * static_cast<float>(unit[64 + b * kRowGroup + r]);
      out.min[0] = -(LoadHalf(unit, kRowGroup + r) * static_cast<float>(unit[192 + b * kRowGroup + r]));
    } else if constexpr (Unit::kHeader == UnitHeader::kSixBitPairs) {
      out.d = LoadHalf(unit, r);
      for (uint32_t h = 0; h < 2; ++h) {
        const uint32_t low = static_cast<uint32_t>(unit[64 + b * kRowGroup + r]) >> (4 * h) & 15;
        const uint32_t high = static_cast<uint32_t>(unit[192 + b / 2 * kRowGroup + r]) >> (b % 2 * 4 + 2 * h) & 3;
        out.scale[h] = static_cast<int>(low | high << 4) - 32;
      }
    } else if constexpr (Unit::kHeader == UnitHeader::kNibblePairs) {
      out.d = LoadHalf(unit, r);
      for (uint32_t h = 0; h < 2; ++h) {
        const uint32_t pair = static_cast<uint32_t>(unit[64 + (2 * b + h) * kRowGroup + r]);
        out.scale[h] = static_cast<int>(pair & 15);
        out.min[h] = -(LoadHalf(unit, kRowGroup + r) * static_cast<float>(pair >> 4));
      }
    } else if constexpr (Unit::kHeader == UnitHeader::kSixBitScales) {
      const uint32_t low = static_cast<uint32_t>(unit[64 + b / 2 * kRowGroup + r]) >> (b % 2 * 4) & 15;
      const uint32_t high = static_cast<uint32_t>(unit[32 + b / 4 * kRowGroup + r]) >> (b % 4 * 2) & 3;
      out.d = LoadHalf(unit, r) * static_cast<float>(static_cast<int>(low | high << 4) - 32);
    } else if constexpr (Unit::kHeader == UnitHeader::kExponents) {
      out.d = MXFP4Scale(static_cast<uint8_t>(unit[b * kRowGroup + r]));
    } else {
      static_assert(Unit::kHeader == UnitHeader::kSignedScales);
      out.d = LoadHalf(unit, r);
      for (uint32_t h = 0; h < 2; ++h) out.scale[h] = SignedOf(unit[64 + (2 * b + h) * kRowGroup + r]);
    }
  });
}

void UnpackRow(const PackedMatrix& matrix, uint32_t row, float* out) {
  KVIST_CHECK(row < matrix.rows);
  if (UsesQuantizedActivations(matrix.dtype)) {
    for (uint32_t b = 0; b < matrix.cols / 32; ++b) {
      PackedBlock block;
      ReadPackedBlock(matrix, row, b, block);
      for (uint32_t half = 0; half < 2; ++half) {
        const float scale = block.d * static_cast<float>(block.scale[half]);
        const float min = block.min[block.mins == 1 ? 0 : half];
        for (uint32_t i = 16 * half; i < 16 * half + 16; ++i) {
          const float product = scale * static_cast<float>(block.q[i]);
          out[b * 32 + i] = block.mins > 0 ? product + min : product;
        }
      }
    }
    return;
  }
  const std::byte* group = matrix.data + row / kRowGroup * GroupBytes(matrix.dtype, matrix.cols);
  for (uint32_t k = 0; k < matrix.cols; ++k) {
    uint32_t index = k * kRowGroup + row % kRowGroup;
    if (matrix.dtype == DType::kF32) {
      std::memcpy(out + k, group + size_t{index} * 4, 4);
    } else {
      uint16_t bits;
      std::memcpy(&bits, group + size_t{index} * 2, 2);
      out[k] = matrix.dtype == DType::kF16 ? F16ToF32(bits) : Bf16ToF32(bits);
    }
  }
}

}  // namespace kvist::kernels
