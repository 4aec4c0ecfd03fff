#pragma once

/// @file
/// Weights of a matrix product as the kernels read them: groups of 16 output rows interleaved, so that a vector lane is
/// an output row and the order of additions along a row is the same on every instruction set. Packing is exact: no
/// weight changes. Plain functions, any thread; disjoint group ranges may be packed in parallel. Non-goals: arithmetic
/// (kernel_table.h), ownership of memory.
///
/// Layout of one group (rows 16 g .. 16 g + 15; missing rows are zero), 64-byte aligned if the base is:
///
///     type              unit of columns   bytes of a unit
///     F32, F16, BF16    1                 element [16 rows]; the group is padded to 64 bytes
///     Q8_0, Q5_0, Q4_0  64 (two blocks)   d f16 [2][16]
///     Q4_1, Q5_1        32                d f16 [16], m f16 [16]
///     Q4_K, Q5_K        256               d f16 [16], dmin f16 [16], scale u8 [8][16], min u8 [8][16]
///     Q6_K              256               d f16 [16], 32 zero bytes, scale i8 [16][16]
///     Q3_K              256               d f16 [16], 32 zero bytes, u8 [8][16], u8 [4][16]: scale + 32, the four
///                                         low bits of block b's two in the nibbles of row b, the two upper bits in
///                                         bits 4 (b % 2) and 4 (b % 2) + 2 of row b / 2
///     Q2_K              256               d f16 [16], dmin f16 [16], scale and min u8 [16][16], min in the high nibble
///     IQ4_NL            64                d f16 [2][16]
///     IQ4_XS            256               d f16 [16], u8 [2][16], u8 [4][16]: scale + 32, block b's two upper bits in
///                                         bits 2 (b % 4) of row b / 4, the four low ones in a nibble of row b / 2
///     MXFP4             128               e u8 [4][16]
///
/// and in the quantised ones the ints of the unit's blocks, those past the last column zero.
///
/// The ints of a block are 32 columns x 16 rows of unsigned integers (codes in the table types), seen as 8 vectors of
/// 64 bytes: vector j holds columns 4 j .. 4 j + 3, and byte 4 r + c of it is row r, column 4 j + c (the order of a
/// 4-way byte dot product).
///
///     8 bit   (512 B)   the vectors as they are: w + 128
///     4 bit   (256 B)   64-byte vector i: low nibbles are vector i, high nibbles vector i + 4
///     5 bit   (320 B)   as 4 bit, then 64 bytes whose bit j is the fifth bit of vector j
///     6 bit   (384 B)   as 4 bit, then 2 x 64 bytes: bits 2 (j % 4) of vector j / 4 are the upper bits of vector j
///     2 bit   (128 B)   2 x 64 bytes: bits 2 (j % 4) of vector j / 4 are vector j
///     3 bit   (192 B)   as 2 bit, then 64 bytes whose bit j is the third bit of vector j

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/kernel_table.h"
#include "tensor/dtype.h"

namespace kvist::kernels {

/// Raised whenever the packed bytes of any type change: packed weights are kept on disk.
inline constexpr uint32_t kPackedVersion = 1;

/// Groups of kRowGroup rows that `rows` rows fill, the last one perhaps partly.
constexpr uint32_t RowGroups(uint32_t rows) {
  return (rows + kRowGroup - 1) / kRowGroup;
}

/// InvalidArgument unless a [rows, cols] matrix of this type can be packed: both at least 1, cols a multiple of the
/// type's block and at most kColumnsMax.
absl::Status CheckPackable(DType dtype, uint32_t rows, uint32_t cols);

/// Bytes of one group, a multiple of 64. REQUIRES: CheckPackable.
size_t GroupBytes(DType dtype, uint32_t cols);

/// Bytes of the whole packed matrix: RowGroups(rows) * GroupBytes. REQUIRES: CheckPackable.
size_t PackedBytes(DType dtype, uint32_t rows, uint32_t cols);

/// Packs groups [group_begin, group_end) of a row-major matrix as it lies in a GGUF file.
/// @param source  [rows][RowBytes(dtype, cols)], no alignment needed.
/// @param packed  base of the whole packed matrix, PackedBytes; only the named groups are written, every byte of them.
void PackRowGroups(DType dtype, const std::byte* source, uint32_t rows, uint32_t cols, uint32_t group_begin,
                   uint32_t group_end, std::byte* packed);

/// Row `row` as f32 [cols]; the same bits as DequantizeRow of the source row. For embedding tables that exist only
/// packed.
void UnpackRow(const PackedMatrix& matrix, uint32_t row, float* out);

/// One row of one block of 32 columns, read back: weight i is (d * scale[i / 16]) * q[i], plus `min[0]` (one min)
/// or `min[i / 16]` (two).
struct PackedBlock {
  int16_t q[32];     ///< What the stored integers mean: codes looked up, offset subtracted.
  int32_t scale[2];  ///< 1 for types without sub-scales of 16 columns.
  float d, min[2];   ///< K types: d * scale and -(dmin * min) of the sub-block, both exact.
  uint32_t mins;     ///< How many of `min` there are.
};

/// REQUIRES: a quantised type, row < 16 * RowGroups(rows), block < cols / 32.
void ReadPackedBlock(const PackedMatrix& matrix, uint32_t row, uint32_t block, PackedBlock& out);

/// True when `matmul` wants activations from quantize_rows, false when it wants plain f32 rows (F32, F16, BF16).
bool UsesQuantizedActivations(DType dtype);

/// Bytes of one row written by quantize_rows, a multiple of 64. REQUIRES: cols % 32 == 0.
size_t ActivationRowBytes(uint32_t cols);

}  // namespace kvist::kernels
