#include "platform/file_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/prng.h"
#include "platform/temp_folder.h"

namespace kvist {
namespace {

class FileReaderTest : public testing::TestWithParam<FileReader::Mode> {
 protected:
  FileReaderTest() {
    Prng prng(1);
    for (size_t i = 0; i < 100'001; ++i) content_ += static_cast<char>(prng.Below(256));
    std::ofstream(path_, std::ios::binary) << content_;
    map_ = *MappedFile::Open(path_);
  }

  std::string Text(std::span<const std::byte> bytes) const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  // Beside the program: a file system in memory does not know direct reads.
  TempFolder folder_ = *TempFolder::Create(KVIST_BINARY_DIR);
  std::string path_ = folder_.path() + "/file", content_;
  MappedFile map_;
};

TEST_P(FileReaderTest, AnyPartIsReadAsItIs) {
  const FileReader reader = *FileReader::Open(map_, path_, GetParam());
  ReadBuffer buffer;
  Prng prng(2);
  for (int i = 0; i < 200; ++i) {
    const size_t begin = prng.Below(content_.size()), bytes = prng.Below(content_.size() - begin + 1);
    const auto read = reader.Read(begin, bytes, buffer);
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_TRUE(Text(*read) == content_.substr(begin, bytes)) << begin << " " << bytes;
  }
}

TEST_P(FileReaderTest, TheOpenFileIsReadWhateverItsNameLeadsTo) {
  std::filesystem::remove(path_);
  std::ofstream(path_, std::ios::binary) << "another file";
  const FileReader reader = *FileReader::Open(map_, path_, GetParam());
  ReadBuffer buffer;
  EXPECT_TRUE(Text(*reader.Read(0, content_.size(), buffer)) == content_);
}

TEST_P(FileReaderTest, AFileThatEndsEarlyIsAnErrorWithThePlace) {
  const FileReader reader = *FileReader::Open(map_, path_, GetParam());
  ReadBuffer buffer;
  const absl::Status status = reader.Read(content_.size() - 5, 6, buffer).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(path_ + ": ends at byte 100001, 1 are missing"));
}

INSTANTIATE_TEST_SUITE_P(Modes, FileReaderTest,
                         testing::Values(FileReader::Mode::kBuffered, FileReader::Mode::kDirect));

}  // namespace
}  // namespace kvist
