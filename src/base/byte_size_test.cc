#include "base/byte_size.h"

#include <gtest/gtest.h>

namespace kvist {
namespace {

TEST(ByteSize, ReadsEveryUnit) {
  EXPECT_EQ(*ParseByteSize("0"), 0u);
  EXPECT_EQ(*ParseByteSize("4096"), 4096u);
  EXPECT_EQ(*ParseByteSize("17B"), 17u);
  EXPECT_EQ(*ParseByteSize("4GiB"), uint64_t{4} << 30);
  EXPECT_EQ(*ParseByteSize("4g"), uint64_t{4} << 30);
  EXPECT_EQ(*ParseByteSize("1.5 MiB"), 3u << 19);
  EXPECT_EQ(*ParseByteSize("2KB"), 2000u);
  EXPECT_EQ(*ParseByteSize("3tb"), 3'000'000'000'000u);
}

TEST(ByteSize, RefusesEverythingElse) {
  for (const char* text : {"", " ", "GiB", "-1", "-1GiB", "+4", "4 Gi B", "4GiBs", "4x", "inf", "nan", "1e400", "0x10",
                           "1..5", " 4", "9223372036854775808", "99999999TiB"}) {
    EXPECT_FALSE(ParseByteSize(text).ok()) << text;
  }
}

TEST(ByteSize, WritesShortly) {
  EXPECT_EQ(FormatByteSize(17), "17 B");
  EXPECT_EQ(FormatByteSize(1024), "1.0 KiB");
  EXPECT_EQ(FormatByteSize((uint64_t{32} << 30) / 10), "3.2 GiB");
  EXPECT_EQ(FormatByteSize((uint64_t{1} << 20) - 1), "1.0 MiB");  // Not "1024 KiB".
  EXPECT_EQ(FormatByteSize(UINT64_MAX), "16.0 EiB");
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
}

}  // namespace
}  // namespace kvist
