#include "platform/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>

namespace kvist {
namespace {

namespace fs = std::filesystem;

class MappedFileTest : public ::testing::Test {
 protected:
  MappedFileTest() : dir_(fs::temp_directory_path() / ("kvist-mapped-" + std::to_string(std::random_device{}()))) {
    fs::create_directories(dir_);
  }
  ~MappedFileTest() override { fs::remove_all(dir_); }

  std::string Write(const char* name, std::string_view bytes) const {
    std::ofstream(dir_ / name, std::ios::binary) << bytes;
    return dir_ / name;
  }

  fs::path dir_;
};

std::string_view Text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST_F(MappedFileTest, MapsWholeFilesAndOutlivesTheirNames) {
  const std::string path = Write("a", "hello");
  auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  fs::remove(path);
  EXPECT_EQ(Text(*file), "hello");
  MappedFile moved = *std::move(file);
  EXPECT_EQ(Text(moved), "hello");
  MappedFile assigned;
  assigned = std::move(moved);
  EXPECT_EQ(Text(assigned), "hello");
}

TEST_F(MappedFileTest, StampsTellOneContentFromTheNext) {
  const std::string path = Write("a", "hello");
  const auto file = MappedFile::Open(path);
  const FileStamp before = *file->Stamp();
  EXPECT_EQ(before.bytes, 5u);
  EXPECT_EQ(*MappedFile::Open(path)->Stamp(), before);
  // A time of its own, as copying tools set it, is still a change.
  fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(1));
  const FileStamp aged = *file->Stamp();
  EXPECT_LT(aged.modified_ns, before.modified_ns);
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::hours(1));
  while (file->Stamp()->changed_ns == before.changed_ns) fs::permissions(path, fs::perms::owner_read);
  EXPECT_NE(*file->Stamp(), before);
}

TEST_F(MappedFileTest, FilesJustWrittenAreCached) {
  const auto file = MappedFile::Open(Write("large", std::string(10'000'000, 'x')));
  EXPECT_EQ(file->CachedShare(), 1.0);
  EXPECT_EQ(MappedFile::Open(Write("empty", ""))->CachedShare(), 1.0);
}

TEST_F(MappedFileTest, EmptyFileIsAnEmptySpan) {
  auto file = MappedFile::Open(Write("empty", ""));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->bytes().empty());
}

TEST_F(MappedFileTest, WhatIsNoFileIsAnErrorThatNamesThePath) {
  EXPECT_TRUE(absl::IsNotFound(MappedFile::Open(dir_ / "absent").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(MappedFile::Open(dir_).status()));
  // A pipe without a writer would block a plain open for ever.
  const std::string pipe = dir_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const absl::Status status = MappedFile::Open(pipe).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(), pipe + ": not a regular file");
}

}  // namespace
}  // namespace kvist
