#include "exec/cpu/packed_cache_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "exec/cpu/packed_cache_testutil.h"

namespace kvist::exec {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

fs::path CorpusFolder() {
  return fs::path(KVIST_SOURCE_DIR) / "tests/fuzz/packed_cache";
}

std::string ContentOf(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(PackedCacheFormat, EachCaseIsAcceptedOrRefusedWithItsPlace) {
  for (const PackedCase& entry : PackedCases()) {
    SCOPED_TRACE(entry.name);
    const absl::Status status = CheckPackedImage(entry.bytes);
    ASSERT_EQ(entry.name.starts_with("ok_"), entry.code == absl::StatusCode::kOk);
    EXPECT_EQ(status.code(), entry.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(entry.message));
  }
}

// The corpus is the list of cases plus what fuzzing found ("ok_fuzz_*", "bad_fuzz_*"). After a change of the list:
// KVIST_WRITE_CORPUS=1 exec_test --gtest_filter='PackedCacheFormat.*'
TEST(PackedCacheFormat, CorpusFilesAreTheCases) {
  if (std::getenv("KVIST_WRITE_CORPUS") != nullptr) {
    fs::create_directories(CorpusFolder());
    for (const PackedCase& entry : PackedCases()) {
      std::ofstream(CorpusFolder() / entry.name, std::ios::binary) << entry.bytes;
    }
  }
  std::set<std::string> names;
  for (const PackedCase& entry : PackedCases()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name << " is in the list twice";
    EXPECT_TRUE(ContentOf(CorpusFolder() / entry.name) == entry.bytes) << entry.name;
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(CorpusFolder())) {
    const std::string name = entry.path().filename();
    EXPECT_TRUE(names.contains(name) || name.starts_with("ok_fuzz_") || name.starts_with("bad_fuzz_")) << name;
    EXPECT_EQ(CheckPackedImage(ContentOf(entry.path())).ok(), name.starts_with("ok_")) << name;
  }
}

TEST(PackedCacheFormat, WhatIsWrittenIsRead) {
  PackedCacheHeader header = SmallPackedHeader();
  header.data_bytes = 2000 * kPackedChunkBytes + 1;
  for (uint64_t i = 0; i < 2001; ++i) header.chunk_hashes.resize(i + 1, i * 7);
  const std::string bytes = EncodePackedHeader(header);
  EXPECT_EQ(bytes.size() % 4096, 0u);
  const auto parsed = ParsePackedHeader(std::as_bytes(std::span(bytes)), bytes.size() + header.data_bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, header);
}

// One wrong bit anywhere is a refusal, whatever it means.
TEST(PackedCacheFormat, EveryBitOfTheHeaderCounts) {
  const std::string image = PackedCases()[0].bytes;
  for (size_t i = 0; i < image.size() - SmallPackedHeader().data_bytes; ++i) {
    std::string changed = image;
    changed[i] = static_cast<char>(changed[i] ^ (1 << i % 8));
    ASSERT_FALSE(CheckPackedImage(changed).ok()) << "byte " << i;
  }
}

}  // namespace
}  // namespace kvist::exec
