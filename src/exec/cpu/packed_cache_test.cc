#include "exec/cpu/packed_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/prng.h"
#include "base/status.h"
#include "exec/cpu/packed_folder.h"
#include "platform/anonymous_memory.h"
#include "platform/file_reader.h"
#include "platform/partial_file.h"
#include "platform/temp_folder.h"

namespace kvist::exec {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr Hash128 kContent{7, 8};

bool GoOn() {
  return true;
}

/// A model without a model: any bytes as packed data, stamps that the test sets.
class PackedCacheTest : public testing::Test {
 protected:
  explicit PackedCacheTest(uint64_t bytes = 2 * kPackedChunkBytes + 777)
      : bytes_(bytes), data_(*AnonymousMemory::Map(bytes + 8)) {
    Prng prng(1);
    for (uint64_t i = 0; i < bytes_; i += 8) *reinterpret_cast<uint64_t*>(data_.data() + i) = prng.Next();
    std::ofstream(model_path_) << "model";
  }

  PackedCache Cache(PackedCache::Options options = {}) {
    if (options.folder.empty()) options.folder = folder_.path() + "/cache";
    return *PackedCache::For(
        std::move(options),
        {.path = model_path_, .stamps = [this] { return stamps_; }, .layout = layout_, .data_bytes = bytes_});
  }
  std::span<const std::byte> data() const { return {data_.data(), bytes_}; }

  absl::Status Write(const PackedCache& cache) { return cache.Write(data(), kContent, GoOn); }

  static std::span<const std::byte> DataOf(const MappedWeights& weights) {
    return {weights.map.data(), weights.map.size()};
  }

  /// OK only with the right bytes, before and after they settle.
  absl::Status Read(const PackedCache& cache) {
    bool cold = false;
    absl::StatusOr<MappedWeights> weights = cache.Map(
        pool_,
        [this]() -> absl::StatusOr<Hash128> {
          ++hashed_;
          return content_now_;
        },
        {}, cold);
    if (!weights.ok()) return weights.status();
    EXPECT_TRUE(std::ranges::equal(DataOf(*weights), data())) << "wrong bytes";
    EXPECT_TRUE(Settle(*weights, GoOn).ok());
    EXPECT_TRUE(std::ranges::equal(DataOf(*weights), data())) << "wrong bytes after settling";
    return absl::OkStatus();
  }

  const uint64_t bytes_;
  TempFolder folder_ = *TempFolder::Create(testing::TempDir());
  std::string model_path_ = folder_.path() + "/model.gguf";
  AnonymousMemory data_;
  ThreadPool pool_{2};
  std::vector<FileStamp> stamps_{{.bytes = 1, .modified_ns = 2, .changed_ns = 3}};
  Hash128 layout_{1, 2}, content_now_ = kContent;
  int hashed_ = 0;
};

TEST_F(PackedCacheTest, WhatIsWrittenIsReadAndNothingIsLeftBeside) {
  const PackedCache cache = Cache();
  EXPECT_TRUE(absl::IsNotFound(Read(cache)));
  ASSERT_TRUE(Write(cache).ok());
  EXPECT_TRUE(Read(cache).ok()) << Read(cache);
  EXPECT_EQ(hashed_, 0);  // Stamps were enough.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path() + "/cache"), {}), 1);
  struct stat info {};
  ASSERT_EQ(::stat(cache.path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat((folder_.path() + "/cache").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(PackedCacheTest, PackingIntoTheFileMakesTheSameFile) {
  const PackedCache cache = Cache();
  const auto built = cache.Build(pool_, [&](std::byte* packed) -> absl::StatusOr<Hash128> {
    std::ranges::copy(data(), packed);
    return kContent;
  });
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_TRUE(std::ranges::equal(DataOf(*built), data()));
  EXPECT_TRUE(Read(cache).ok());
  // A packing that fails leaves nothing.
  fs::remove(cache.path());
  EXPECT_FALSE(cache.Build(pool_, [](std::byte*) -> absl::StatusOr<Hash128> { return absl::DataLossError("x"); }).ok());
  EXPECT_TRUE(fs::is_empty(folder_.path() + "/cache"));
}

// Bytes that change behind a checked map, as on a failing disk, do not move into memory as if they had been checked.
TEST_F(PackedCacheTest, OnlyCheckedBytesSettle) {
  const PackedCache cache = Cache();
  ASSERT_TRUE(Write(cache).ok());
  bool cold = false;
  absl::StatusOr<MappedWeights> weights = cache.Map(
      pool_, []() -> absl::StatusOr<Hash128> { return kContent; }, {}, cold);
  ASSERT_TRUE(weights.ok());
  ++weights->chunk_hashes[1];
  EXPECT_TRUE(Settle(*weights, GoOn).ok());
  std::fstream(cache.path(), std::ios::in | std::ios::out | std::ios::binary)
      << std::string(fs::file_size(cache.path()), 'x');
  EXPECT_EQ(weights->map.data()[0], data()[0]);
  EXPECT_EQ(weights->map.data()[kPackedChunkBytes], std::byte{'x'});  // Still the file's.
  EXPECT_EQ(weights->map.data()[2 * kPackedChunkBytes], data()[2 * kPackedChunkBytes]);
}

TEST_F(PackedCacheTest, AWrongByteAnywhereIsAMissAndWritingAnewRepairsIt) {
  const PackedCache cache = Cache();
  ASSERT_TRUE(Write(cache).ok());
  const uint64_t size = fs::file_size(cache.path());
  for (const uint64_t at :
       {uint64_t{0}, uint64_t{13}, uint64_t{50}, uint64_t{4095}, uint64_t{4096}, 4096 + kPackedChunkBytes, size - 1}) {
    {
      std::fstream file(cache.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(static_cast<std::streamoff>(at));
      const char byte = static_cast<char>(file.get() ^ 0x10);
      file.seekp(static_cast<std::streamoff>(at));
      file.put(byte);
    }
    EXPECT_FALSE(Read(cache).ok()) << "byte " << at;
    ASSERT_TRUE(Write(cache).ok());
    ASSERT_TRUE(Read(cache).ok());
  }
  for (const uint64_t cut : {uint64_t{0}, uint64_t{10}, uint64_t{4096}, uint64_t{5000}, size - 1}) {
    fs::resize_file(cache.path(), cut);
    EXPECT_FALSE(Read(cache).ok()) << "cut to " << cut;
    ASSERT_TRUE(Write(cache).ok());
  }
  fs::resize_file(cache.path(), size + 1);
  EXPECT_FALSE(Read(cache).ok());
}

TEST_F(PackedCacheTest, AWriterThatDiedLeavesNoCacheAndDoesNotStopTheNext) {
  const PackedCache cache = Cache();
  ASSERT_TRUE(Write(cache).ok());
  std::string half(fs::file_size(cache.path()) / 2, '\0');
  std::ifstream(cache.path(), std::ios::binary).read(half.data(), static_cast<std::streamsize>(half.size()));
  fs::remove(cache.path());
  std::ofstream(cache.path() + ".part", std::ios::binary) << half;
  EXPECT_TRUE(absl::IsNotFound(Read(cache)));
  ASSERT_TRUE(Write(cache).ok());
  EXPECT_TRUE(Read(cache).ok());
  EXPECT_FALSE(fs::exists(cache.path() + ".part"));
}

TEST_F(PackedCacheTest, AWriteThatIsGivenUpLeavesNothing) {
  const PackedCache cache = Cache();
  int asked = 0;
  EXPECT_TRUE(absl::IsCancelled(cache.Write(data(), kContent, [&] { return ++asked < 5; })));
  EXPECT_TRUE(fs::is_empty(folder_.path() + "/cache"));
}

TEST_F(PackedCacheTest, OneOfTwoWritersWrites) {
  const PackedCache cache = Cache();
  ASSERT_TRUE(PrepareFolder(folder_.path() + "/cache").ok());
  {
    const auto other = PartialFile::Open(cache.path(), [] { return false; });
    ASSERT_TRUE(other.ok());
    EXPECT_TRUE(absl::IsCancelled(Write(cache)));
  }
  EXPECT_TRUE(Write(cache).ok());
}

TEST_F(PackedCacheTest, AFolderThatCannotBeWrittenIsAnErrorThatNamesIt) {
  std::ofstream(folder_.path() + "/file") << "x";
  const absl::Status status = Write(Cache({.folder = folder_.path() + "/file/cache"}));
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder_.path() + "/file"));
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Write(Cache({.folder = folder_.path() + "/small", .folder_bytes_max = 5000}))));
}

TEST_F(PackedCacheTest, AnotherLayoutOrSizeIsAMiss) {
  ASSERT_TRUE(Write(Cache()).ok());
  layout_.high ^= 1;
  EXPECT_TRUE(absl::IsFailedPrecondition(Read(Cache())));
}

TEST_F(PackedCacheTest, OtherStampsAskForTheContentOnce) {
  ASSERT_TRUE(Write(Cache()).ok());
  stamps_[0].changed_ns = 30;
  EXPECT_TRUE(Read(Cache()).ok());
  EXPECT_EQ(hashed_, 1);
  EXPECT_TRUE(Read(Cache()).ok());  // The new stamp has been noted.
  EXPECT_EQ(hashed_, 1);
  stamps_[0].modified_ns = 20;
  content_now_.low ^= 1;
  EXPECT_TRUE(absl::IsFailedPrecondition(Read(Cache())));
  EXPECT_EQ(hashed_, 2);
}

TEST_F(PackedCacheTest, StampsThatProveNothingAreNotKept) {
  // Changed a moment ago: it could change again within the same tick.
  stamps_[0].changed_ns = std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  ASSERT_TRUE(Write(Cache()).ok());
  EXPECT_TRUE(Read(Cache()).ok());
  EXPECT_EQ(hashed_, 1);
  // Changed while it was read.
  stamps_[0].changed_ns = 3;
  const PackedCache cache = Cache();
  stamps_[0].changed_ns = 4;
  ASSERT_TRUE(Write(cache).ok());
  EXPECT_TRUE(Read(Cache()).ok());
  EXPECT_EQ(hashed_, 2);
}

TEST_F(PackedCacheTest, TheFolderStaysWithinItsLimit) {
  const uint64_t file_bytes = bytes_ + 4096;
  const PackedCache::Options options{.folder = folder_.path() + "/cache", .folder_bytes_max = 2 * file_bytes};
  std::vector<std::string> paths;
  const auto add = [&](const char* name) {
    model_path_ = folder_.path() + "/" + name;
    std::ofstream(model_path_) << "model";
    const PackedCache cache = Cache(options);
    ASSERT_TRUE(Write(cache).ok());
    paths.push_back(cache.path());
    const auto age = std::chrono::hours(10 - static_cast<int>(paths.size()));
    fs::last_write_time(cache.path(), fs::file_time_type::clock::now() - age);
  };
  add("a.gguf");
  add("b.gguf");
  std::ofstream(folder_.path() + "/cache/notes.txt") << "not ours";
  model_path_ = folder_.path() + "/a.gguf";
  ASSERT_TRUE(Read(Cache(options)).ok());  // Now b is the longest unused one.
  add("c.gguf");
  EXPECT_TRUE(fs::exists(paths[0]));
  EXPECT_FALSE(fs::exists(paths[1]));
  EXPECT_TRUE(fs::exists(folder_.path() + "/cache/notes.txt"));
  // A model that is gone needs no cache, however much room there is.
  fs::remove(folder_.path() + "/c.gguf");
  model_path_ = folder_.path() + "/d.gguf";
  std::ofstream(model_path_) << "model";
  ASSERT_TRUE(Write(Cache({.folder = options.folder})).ok());
  EXPECT_FALSE(fs::exists(paths[2]));
  EXPECT_TRUE(fs::exists(paths[0]));
}

TEST_F(PackedCacheTest, ALinkToAModelHasTheModelsCache) {
  const std::string path = Cache().path();
  fs::create_symlink(model_path_, folder_.path() + "/link.gguf");
  model_path_ = folder_.path() + "/link.gguf";
  EXPECT_EQ(Cache().path(), path);
}

}  // namespace
}  // namespace kvist::exec
