#include "kernels/packed.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/kernels_testutil.h"
#include "tensor/dequantize.h"

namespace kvist::kernels {
namespace {

using testing::AllTypes;
using testing::Bytes;
using testing::Difference;

// Packing may move integers and scales, never change a weight.
TEST(PackedTest, UnpackedRowsHaveTheBitsOfTheSource) {
  Prng prng(1);
  for (DType dtype : AllTypes()) {
    uint32_t block = InfoOf(dtype).block_elements;
    for (uint32_t rows : {1u, 16u, 21u}) {
      for (uint32_t blocks : {1u, 2u, 3u, 7u}) {
        uint32_t cols = block * blocks;
        std::vector<std::byte> source = testing::RandomBits(dtype, rows, cols, prng);
        testing::OwnedMatrix packed = testing::Pack(dtype, source, rows, cols);
        for (uint32_t r = 0; r < rows; ++r) {
          std::vector<float> expected(cols), got(cols);
          DequantizeRow(dtype, source.data() + r * RowBytes(dtype, cols), cols, expected.data());
          UnpackRow(packed.matrix, r, got.data());
          ASSERT_EQ(Difference(got, expected), "") << InfoOf(dtype).name << " rows " << rows << " cols " << cols;
        }
      }
    }
  }
}

TEST(PackedTest, PackingByPartsEqualsPackingAtOnce) {
  Prng prng(2);
  for (DType dtype : AllTypes()) {
    uint32_t rows = 37, cols = InfoOf(dtype).block_elements * 3;
    std::vector<std::byte> source = testing::RandomBits(dtype, rows, cols, prng);
    testing::OwnedMatrix whole = testing::Pack(dtype, source, rows, cols);
    Bytes parts(PackedBytes(dtype, rows, cols));
    for (uint32_t group : {2u, 0u, 1u}) {
      PackRowGroups(dtype, source.data(), rows, cols, group, group + 1, parts.data());
    }
    EXPECT_TRUE(std::equal(parts.data(), parts.data() + parts.size(), whole.bytes.data())) << InfoOf(dtype).name;
  }
}

// Packed weights are kept on disk. When this fails because the packed form has changed on purpose, raise kPackedVersion
// and note the new number.
TEST(PackedTest, PackedBytesAreThoseOfTheirVersion) {
  Prng prng(3);
  uint64_t hash = kPackedVersion;
  for (DType dtype : AllTypes()) {
    const uint32_t rows = 21, cols = InfoOf(dtype).block_elements * 3;
    const testing::OwnedMatrix packed = testing::Pack(dtype, testing::RandomBits(dtype, rows, cols, prng), rows, cols);
    for (size_t i = 0; i < packed.bytes.size(); ++i) hash = Mix64(hash ^ static_cast<uint64_t>(packed.bytes.data()[i]));
  }
  EXPECT_EQ(hash, 15581729137547300704u);
}

// The promise behind "decode is bound by the bytes of the file": packing costs little memory.
TEST(PackedTest, PackedSizeStaysNearTheSource) {
  for (DType dtype : AllTypes()) {
    double source = 4096.0 * static_cast<double>(RowBytes(dtype, 2048));
    double packed = static_cast<double>(PackedBytes(dtype, 4096, 2048));
    EXPECT_GE(packed, source) << InfoOf(dtype).name;
    EXPECT_LE(packed, source * 1.03) << InfoOf(dtype).name;
    EXPECT_EQ(GroupBytes(dtype, 2048) % 64, 0u);
  }
}

TEST(PackedTest, RefusesShapesThatCannotBePacked) {
  EXPECT_TRUE(CheckPackable(DType::kQ4_K, 1, 256).ok());
  EXPECT_TRUE(CheckPackable(DType::kF16, 1, 1).ok());
  EXPECT_EQ(CheckPackable(DType::kQ4_K, 1, 32).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckPackable(DType::kQ8_0, 1, 33).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(CheckPackable(DType::kQ8_0, 0, 32).ok());
  EXPECT_FALSE(CheckPackable(DType::kF32, 1, 0).ok());
  EXPECT_FALSE(CheckPackable(DType::kF32, 1, kColumnsMax + 1).ok());
}

}  // namespace
}  // namespace kvist::kernels
