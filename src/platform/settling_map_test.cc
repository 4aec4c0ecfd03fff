#include "platform/settling_map.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "base/prng.h"
#include "platform/process.h"
#include "platform/temp_folder.h"

namespace kvist {
namespace {

constexpr uint64_t kOffset = 4096, kBytes = 3 * kSettlePieceBytes + 12'345;

class SettlingMapTest : public testing::Test {
 protected:
  SettlingMapTest() {
    Prng prng(1);
    content_.resize(kOffset + kBytes);
    for (char& c : content_) c = static_cast<char>(prng.Below(256));
    std::ofstream(path_, std::ios::binary) << content_;
    map_ = *SettlingMap::Map(*MappedFile::Open(path_), kOffset, kBytes);
  }
  bool SameBytes() const { return std::memcmp(map_.data(), content_.data() + kOffset, kBytes) == 0; }

  TempFolder folder_ = *TempFolder::Create(testing::TempDir());
  std::string path_ = folder_.path() + "/file", content_;
  SettlingMap map_;
};

TEST_F(SettlingMapTest, BytesAndAddressesStayTheSameWhilePiecesMove) {
  ASSERT_EQ(map_.pieces(), 4u);
  EXPECT_TRUE(map_.Populate(0, kBytes).ok());
  EXPECT_TRUE(SameBytes());
  const std::byte* const data = map_.data();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> wrong{0}, reads{0};
  std::thread reader([&] {
    while (!stop.load()) {
      wrong += SameBytes() ? 0 : 1;
      ++reads;
    }
  });
  for (const uint32_t piece : {2u, 0u, 3u, 1u}) {
    const std::byte* copy = map_.CopyPiece(piece);
    EXPECT_EQ(copy[100], map_.data()[piece * kSettlePieceBytes + 100]);
    EXPECT_TRUE(map_.MovePiece(piece).ok());
    const uint64_t seen = reads.load();
    while (reads.load() < seen + 2) std::this_thread::yield();
  }
  stop = true;
  reader.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_EQ(map_.data(), data);
  EXPECT_TRUE(SameBytes());
  // Nothing depends on the file any more.
  std::fstream(path_, std::ios::in | std::ios::out | std::ios::binary) << std::string(content_.size(), 'x');
  EXPECT_TRUE(SameBytes());
}

TEST_F(SettlingMapTest, APartThatTheFileLostIsAnError) {
  std::ofstream(path_, std::ios::binary | std::ios::trunc) << "short";
  EXPECT_TRUE(absl::IsDataLoss(map_.Populate(0, kBytes)));
}

}  // namespace
}  // namespace kvist
