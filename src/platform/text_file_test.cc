#include "platform/text_file.h"

#include <fstream>

#include <gtest/gtest.h>

#include "platform/temp_folder.h"

namespace kvist {
namespace {

TEST(TextFile, GivesTheBytes) {
  const absl::StatusOr<TempFolder> folder = TempFolder::Create(testing::TempDir());
  ASSERT_TRUE(folder.ok());
  const std::string path = folder->path() + "/a.toml";
  const std::string text = std::string(40000, 'x') + '\0' + "\xff";
  std::ofstream(path, std::ios::binary) << text;
  const absl::StatusOr<std::string> read = ReadTextFile(path, text.size());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, text);
}

TEST(TextFile, NamesThePathInErrors) {
  const absl::StatusOr<TempFolder> folder = TempFolder::Create(testing::TempDir());
  ASSERT_TRUE(folder.ok());
  const std::string path = folder->path() + "/big";
  std::ofstream(path) << "12345";
  for (const absl::Status& status : {ReadTextFile(path, 4).status(), ReadTextFile(folder->path(), 100).status(),
                                     ReadTextFile(path + "0", 9).status()}) {
    EXPECT_FALSE(status.ok());
    EXPECT_NE(std::string(status.message()).find(folder->path()), std::string::npos) << status;
  }
  EXPECT_TRUE(absl::IsNotFound(ReadTextFile(path + "0", 9).status()));
}

}  // namespace
}  // namespace kvist
