#include "platform/partial_file.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include <gtest/gtest.h>

#include "platform/subprocess.h"
#include "platform/temp_folder.h"

namespace kvist {
namespace {

std::string ContentOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool NeverWait() {
  ADD_FAILURE() << "waited for a lock that nobody holds";
  return false;
}

class PartialFileTest : public testing::Test {
 protected:
  TempFolder folder_ = *TempFolder::Create(testing::TempDir());
  std::string target_ = folder_.path() + "/file";
};

TEST_F(PartialFileTest, TargetAppearsWholeAndAtOnce) {
  absl::StatusOr<PartialFile> file = PartialFile::Open(target_, NeverWait);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Append(std::string("hello ")).ok());
  ASSERT_TRUE(file->Append(std::string("world")).ok());
  EXPECT_FALSE(std::filesystem::exists(target_));
  ASSERT_TRUE(file->Publish().ok());
  EXPECT_EQ(ContentOf(target_), "hello world");
  EXPECT_FALSE(std::filesystem::exists(target_ + ".part"));
}

TEST_F(PartialFileTest, WhatWasWrittenIsContinuedAndEmptyFilesAreNotLeft) {
  {
    absl::StatusOr<PartialFile> file = PartialFile::Open(target_, NeverWait);
    ASSERT_TRUE(file->Append(std::string("0123456789")).ok());
  }
  {
    absl::StatusOr<PartialFile> file = PartialFile::Open(target_, NeverWait);
    EXPECT_EQ(file->size(), 10u);
    ASSERT_TRUE(file->Truncate(4).ok());
    ASSERT_TRUE(file->Append(std::string("x")).ok());
    EXPECT_EQ(ContentOf(target_ + ".part"), "0123x");
    ASSERT_TRUE(file->Truncate(0).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(PartialFileTest, SecondWriterWaitsThenSeesThatTheFirstPublished) {
  absl::StatusOr<PartialFile> first = PartialFile::Open(target_, NeverWait);
  ASSERT_TRUE(first->Append(std::string("first")).ok());
  std::atomic<int> waits = 0;
  std::thread second_writer([&] {
    absl::StatusOr<PartialFile> second = PartialFile::Open(target_, [&] { return ++waits < 100; });
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_EQ(second->size(), 0u);  // A new file, not the published one.
  });
  while (waits == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_TRUE(first->Publish().ok());
  second_writer.join();
  EXPECT_EQ(ContentOf(target_), "first");
}

TEST_F(PartialFileTest, WaitingCanBeGivenUp) {
  absl::StatusOr<PartialFile> first = PartialFile::Open(target_, NeverWait);
  EXPECT_TRUE(absl::IsCancelled(PartialFile::Open(target_, [] { return false; }).status()));
}

TEST_F(PartialFileTest, PrivateFilesAreTheUsersAlone) {
  absl::StatusOr<PartialFile> file = PartialFile::Open(target_, NeverWait, FileAccess::kPrivate);
  ASSERT_TRUE(file->Append(std::string("secret")).ok());
  file->BeginWriteback();
  ASSERT_TRUE(file->Publish().ok());
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(target_).permissions(), perms::owner_read | perms::owner_write);
}

TEST_F(PartialFileTest, WhatIsWrittenToTheMapIsTheContent) {
  absl::StatusOr<PartialFile> file = PartialFile::Open(target_, NeverWait);
  const absl::StatusOr<std::span<std::byte>> map = file->AllocateAndMap(5000);
  ASSERT_TRUE(map.ok()) << map.status();
  ASSERT_EQ(map->size(), 5000u);
  (*map)[0] = std::byte{'a'};
  (*map)[4999] = std::byte{'z'};
  PartialFile moved = *std::move(file);
  ASSERT_TRUE(moved.Publish().ok());
  EXPECT_EQ(ContentOf(target_), "a" + std::string(4998, '\0') + "z");
  // More than any disk has: an error, and no bytes left behind.
  absl::StatusOr<PartialFile> huge = PartialFile::Open(target_, NeverWait);
  EXPECT_FALSE(huge->AllocateAndMap(uint64_t{1} << 60).ok());
  EXPECT_EQ(huge->size(), 0u);
}

TEST_F(PartialFileTest, ErrorsNameThePath) {
  const absl::Status missing = PartialFile::Open(folder_.path() + "/no/file", NeverWait).status();
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_NE(missing.message().find("/no/file.part"), absl::string_view::npos) << missing;
  // A link in place of the partial file must not lead the writer elsewhere.
  std::filesystem::create_symlink("/dev/null", target_ + ".part");
  EXPECT_FALSE(PartialFile::Open(target_, NeverWait).ok());
}

TEST(RunProgram, GivesExitCodesAndStartFailures) {
  const auto forever = [] { return true; };
  EXPECT_EQ(RunProgram({"true"}, forever).value_or(-1), 0);
  EXPECT_EQ(RunProgram({"sh", "-c", "exit 7"}, forever).value_or(-1), 7);
  EXPECT_EQ(RunProgram({"sh", "-c", "kill -9 $$"}, forever).value_or(-1), 128 + 9);
  EXPECT_TRUE(absl::IsNotFound(RunProgram({"/no/such/program"}, forever).status()));
  // Arguments are passed as they are: nothing is expanded or split.
  EXPECT_EQ(RunProgram({"test", "a b;$HOME", "=", "a b;$HOME"}, forever).value_or(-1), 0);
  EXPECT_EQ(RunProgram({"cat"}, forever).value_or(-1), 0);  // Empty input.
}

TEST(RunProgram, InterruptEndsTheProgram) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(absl::IsCancelled(RunProgram({"sleep", "60"}, [] { return false; }).status()));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace kvist
