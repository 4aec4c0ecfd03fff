#include "platform/real_disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>

#include "base/prng.h"
#include "platform/disk_calibration.h"
#include "platform/temp_folder.h"

namespace kvist {
namespace {

/// Each engine, on a file system with direct access (where the tests run) and on one without (tmpfs).
struct Place {
  DiskEngine engine;
  const char* parent;
};

class RealDiskTest : public testing::TestWithParam<Place> {
 protected:
  RealDiskTest() : folder_(*TempFolder::Create(GetParam().parent)) {}
  std::unique_ptr<Disk> OpenDisk(uint32_t depth = 8) {
    auto disk = OpenRealDisk(folder_.path(), {.engine = GetParam().engine, .depth_max = depth});
    if (absl::IsUnavailable(disk.status())) return nullptr;
    EXPECT_TRUE(disk.ok()) << disk.status();
    return *std::move(disk);
  }
  TempFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Places, RealDiskTest,
                         testing::Values(Place{DiskEngine::kUring, "/tmp"}, Place{DiskEngine::kThreads, "/tmp"},
                                         Place{DiskEngine::kUring, "/dev/shm"},
                                         Place{DiskEngine::kThreads, "/dev/shm"}),
                         [](const auto& place) {
                           return std::string(place.param.engine == DiskEngine::kUring ? "Uring" : "Threads") +
                                  (std::string_view(place.param.parent) == "/tmp" ? "Tmp" : "Shm");
                         });

void Fill(DiskMemory& memory, uint64_t seed) {
  Prng prng(seed);
  for (size_t i = 0; i < memory.size(); i += 8) {
    const uint64_t word = prng.Next();
    std::memcpy(memory.data() + i, &word, 8);
  }
}

TEST_P(RealDiskTest, ManyScatteredWritesAndReadsComplete) {
  const auto disk = OpenDisk();
  if (disk == nullptr) GTEST_SKIP() << "io_uring is not allowed here";
  const DiskFile file = *disk->Open("data", DiskOpen::kCreate);
  constexpr size_t kPieces = 40, kPart = kDirectAlignment;
  std::vector<DiskMemory> written, read;
  std::vector<std::vector<DiskBuffer>> buffers(kPieces);
  std::vector<DiskRequest> requests;
  for (size_t i = 0; i < kPieces; ++i) {
    written.emplace_back(3 * kPart);
    read.emplace_back(3 * kPart);
    Fill(written[i], i);
    buffers[i] = {{written[i].data() + 2 * kPart, kPart}, {written[i].data(), 2 * kPart}};
    requests.push_back(
        {.kind = DiskRequest::Kind::kWrite, .file = file, .offset = i * 3 * kPart, .buffers = buffers[i], .tag = i});
  }
  const auto run = [&] {
    disk->Submit(requests);
    EXPECT_EQ(disk->in_flight(), kPieces);
    std::vector<DiskCompletion> done;
    while (disk->in_flight() > 0) disk->Poll(done, true);
    std::vector<uint64_t> tags;
    for (const DiskCompletion& completion : done) {
      EXPECT_TRUE(completion.status.ok()) << completion.status;
      EXPECT_EQ(completion.bytes, 3 * kPart);
      tags.push_back(completion.tag);
    }
    std::ranges::sort(tags);
    ASSERT_EQ(tags.size(), kPieces);
    for (size_t i = 0; i < kPieces; ++i) EXPECT_EQ(tags[i], i);
  };
  run();
  ASSERT_TRUE(SyncNow(*disk, file).ok());
  EXPECT_EQ(*disk->Size(file), kPieces * 3 * kPart);
  for (size_t i = 0; i < kPieces; ++i) {
    requests[i].kind = DiskRequest::Kind::kRead;
    buffers[i] = {{read[i].data() + 2 * kPart, kPart}, {read[i].data(), 2 * kPart}};
  }
  run();
  for (size_t i = 0; i < kPieces; ++i) EXPECT_EQ(std::memcmp(read[i].data(), written[i].data(), 3 * kPart), 0);
  // tmpfs may or may not have direct access, depending on the system; the folder of the tests may not either.
  EXPECT_EQ(disk->report().engine, GetParam().engine == DiskEngine::kUring ? "io_uring" : "threads");
}

TEST_P(RealDiskTest, ReadsPastTheEndAreShortAndErasedBytesAreZero) {
  const auto disk = OpenDisk();
  if (disk == nullptr) GTEST_SKIP() << "io_uring is not allowed here";
  const DiskFile file = *disk->Open("data", DiskOpen::kCreate);
  DiskMemory memory(4 * kDirectAlignment);
  Fill(memory, 1);
  ASSERT_TRUE(WriteNow(*disk, file, 0, {memory.data(), memory.size()}).ok());
  ASSERT_TRUE(disk->Erase(file, kDirectAlignment, 2 * kDirectAlignment).ok());
  ASSERT_TRUE(disk->Truncate(file, 3 * kDirectAlignment + 100).ok());
  DiskMemory back(4 * kDirectAlignment);
  Fill(back, 2);
  EXPECT_EQ(*ReadNow(*disk, file, 0, {back.data(), back.size()}), 3 * kDirectAlignment + 100);
  EXPECT_EQ(std::memcmp(back.data(), memory.data(), kDirectAlignment), 0);
  EXPECT_THAT(back.span().subspan(kDirectAlignment, 2 * kDirectAlignment), testing::Each(std::byte{0}));
  EXPECT_EQ(*ReadNow(*disk, file, 16 * kDirectAlignment, {back.data(), kDirectAlignment}), 0u);
  EXPECT_EQ(*disk->Size(file), 3 * kDirectAlignment + 100);
}

TEST_P(RealDiskTest, NamesAndErrors) {
  const auto disk = OpenDisk();
  if (disk == nullptr) GTEST_SKIP() << "io_uring is not allowed here";
  EXPECT_TRUE(absl::IsNotFound(disk->Open("a", DiskOpen::kRead).status()));
  const DiskFile a = *disk->Open("a", DiskOpen::kCreate);
  EXPECT_TRUE(absl::IsAlreadyExists(disk->Open("a", DiskOpen::kCreate).status()));
  struct stat status {};
  ASSERT_EQ(::stat((folder_.path() + "/a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_TRUE(disk->Rename("a", "b").ok());
  const DiskFile b = *disk->Open("b", DiskOpen::kRead);
  EXPECT_NE(a, b);
  EXPECT_THAT(*disk->List(), testing::ElementsAre("b"));
  DiskMemory memory(kDirectAlignment);
  EXPECT_FALSE(WriteNow(*disk, b, 0, {memory.data(), memory.size()}).ok());  // Open for reading alone.
  ASSERT_TRUE(disk->Unlink("b").ok());
  ASSERT_TRUE(WriteNow(*disk, a, 0, {memory.data(), memory.size()}).ok());  // Whoever has it open keeps it.
  EXPECT_THAT(*disk->List(), testing::IsEmpty());
  EXPECT_TRUE(disk->SyncFolder().ok());
  disk->Close(b);
  disk->Close(a);
}

TEST_P(RealDiskTest, LocksExcludeOthers) {
  const auto first = OpenDisk(), second = OpenDisk();
  if (first == nullptr) GTEST_SKIP() << "io_uring is not allowed here";
  EXPECT_FALSE(second->IsLocked("lock"));
  ASSERT_TRUE(first->Lock("lock").ok());
  EXPECT_FALSE(first->IsLocked("lock"));
  EXPECT_TRUE(second->IsLocked("lock"));
  EXPECT_TRUE(absl::IsUnavailable(second->Lock("lock")));
}

TEST_P(RealDiskTest, KnowsWhenItsFolderIsGone) {
  const std::string path = folder_.path() + "/inner";
  std::filesystem::create_directory(path);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  const absl::StatusOr<std::unique_ptr<Disk>> disk = OpenRealDisk(path, {.engine = GetParam().engine});
  if (absl::IsUnavailable(disk.status())) GTEST_SKIP() << "io_uring is not allowed here";
  EXPECT_TRUE((*disk)->CheckFolder().ok());
  std::filesystem::rename(path, path + "-elsewhere");
  EXPECT_TRUE(absl::IsNotFound((*disk)->CheckFolder()));
  std::filesystem::create_directory(path);  // Another one.
  EXPECT_TRUE(absl::IsNotFound((*disk)->CheckFolder()));
}

TEST_P(RealDiskTest, Calibrates) {
  const auto disk = OpenDisk(16);
  if (disk == nullptr) GTEST_SKIP() << "io_uring is not allowed here";
  const absl::StatusOr<DiskSpeed> speed = CalibrateDisk(
      *disk, {.file_bytes = 8u << 20, .seconds_max = 2, .block_bytes = {64u << 10, 1u << 20}, .depths = {1, 4}});
  ASSERT_TRUE(speed.ok()) << speed.status();
  ASSERT_EQ(speed->rows.size(), 4u);
  for (const DiskSpeed::Row& row : speed->rows) {
    EXPECT_GT(row.read_bytes_per_s, 0);
    EXPECT_GT(row.write_bytes_per_s, 0);
    EXPECT_LE(row.read_bytes_per_s, speed->Best().read_bytes_per_s * 1.05 + 1);
  }
  EXPECT_THAT(*disk->List(), testing::IsEmpty());
  const absl::StatusOr<DiskSpeed> again = ParseDiskSpeed(EncodeDiskSpeed(*speed));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->rows.size(), 4u);
  EXPECT_EQ(again->Best().block_bytes, speed->Best().block_bytes);
}

TEST(RealDisk, RefusesFoldersThatOthersMayWriteInto) {
  const TempFolder folder = *TempFolder::Create("/tmp");
  const std::string path = folder.path() + "/open";
  ASSERT_TRUE(OpenRealDisk(path, {.create = true}).ok());
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  ASSERT_EQ(::chmod(path.c_str(), 0777), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(OpenRealDisk(path).status()));
  EXPECT_TRUE(absl::IsNotFound(OpenRealDisk(folder.path() + "/none").status()));
}

TEST(DiskSpeed, HostileText) {
  for (const char* text : {"", "kvist-disk-speed 2\n", "kvist-disk-speed 1\n1 2 3\n", "kvist-disk-speed 1\n0 1 5 5\n",
                           "kvist-disk-speed 1\n4096 1 nan 5\n", "kvist-disk-speed 1\n4096 1 5 5 5\n"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseDiskSpeed(text).status())) << text;
  }
}

}  // namespace
}  // namespace kvist
