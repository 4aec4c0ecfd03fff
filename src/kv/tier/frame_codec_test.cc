#include "kv/tier/frame_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "base/prng.h"
#include "tensor/half.h"

namespace kvist::kv {
namespace {

constexpr uint16_t kInfinity = 0x7c00, kNaN = 0x7e01;

PageLayout Layout() {
  return PageLayout::Dense(KvType::kF16, /*layers=*/3, /*kv_heads=*/2, /*key_width=*/40, /*value_width=*/33);
}

/// Numbers of one page, in order.
std::span<uint16_t> PageOf(std::vector<std::byte>& frame, const PageLayout& layout, uint32_t page) {
  return {reinterpret_cast<uint16_t*>(frame.data() + layout.PageOffset(page)),
          size_t{layout.LaneOf(page).width} * kBlockTokens};
}

/// Pages of very different magnitudes; in each a few numbers are much greater than the others.
std::vector<std::byte> RandomFrame(const PageLayout& layout, uint64_t seed) {
  Prng prng(seed);
  std::vector<std::byte> frame(layout.frame_bytes());
  for (uint32_t page = 0; page < layout.pages(); ++page) {
    const double magnitude = std::exp2(static_cast<double>(prng.Below(16)) - 8);
    for (uint16_t& number : PageOf(frame, layout, page)) {
      const double outlier = prng.Below(50) == 0 ? 20 : 1;
      number = F32ToF16(static_cast<float>((2 * prng.Uniform() - 1) * magnitude * outlier));
    }
  }
  return frame;
}

std::vector<std::byte> ThereAndBack(const FrameCodec& codec, const std::vector<std::byte>& frame) {
  std::vector<std::byte> encoded(codec.encoded_bytes()), back(frame.size());
  codec.Encode(frame.data(), encoded.data());
  codec.Decode(encoded.data(), back.data());
  return back;
}

TEST(FrameCodec, NoneKeepsEveryBit) {
  const auto codec = *MakeFrameCodec("none", Layout());
  EXPECT_TRUE(codec->lossless());
  std::vector<std::byte> frame(Layout().frame_bytes());
  Prng prng(1);
  for (std::byte& byte : frame) byte = static_cast<std::byte>(prng.Below(256));
  EXPECT_EQ(ThereAndBack(*codec, frame), frame);
}

TEST(FrameCodec, Int8IsOffByHalfAStepAtMost) {
  const PageLayout layout = Layout();
  const auto codec = *MakeFrameCodec("int8", layout);
  EXPECT_FALSE(codec->lossless());
  EXPECT_LT(codec->encoded_bytes(), layout.frame_bytes() * 0.55);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::vector<std::byte> frame = RandomFrame(layout, seed);
    std::vector<std::byte> back = ThereAndBack(*codec, frame);
    bool same = true;
    for (uint32_t page = 0; page < layout.pages(); ++page) {
      const auto was = PageOf(frame, layout, page), is = PageOf(back, layout, page);
      float greatest = 0;
      for (const uint16_t number : was) greatest = std::max(greatest, std::abs(F16ToF32(number)));
      const float half_step = greatest / 127 / 2;
      for (size_t i = 0; i < was.size(); ++i) {
        const float x = F16ToF32(was[i]), y = F16ToF32(is[i]);
        ASSERT_LE(std::abs(x - y), half_step * 1.001f + std::abs(y) / 2048) << page << " " << i;
        same = same && was[i] == is[i];
      }
    }
    EXPECT_FALSE(same);
    EXPECT_EQ(ThereAndBack(*codec, back), back) << "blocks wander as they come and go";
  }
}

TEST(FrameCodec, Int8KeepsZerosAndDoesNotHideWhatIsNotANumber) {
  const PageLayout layout = Layout();
  const auto codec = *MakeInt8Codec(layout);
  std::vector<std::byte> frame(layout.frame_bytes());
  EXPECT_EQ(ThereAndBack(*codec, frame), frame);
  frame = RandomFrame(layout, 3);
  PageOf(frame, layout, 1)[7] = kInfinity;
  PageOf(frame, layout, 5).back() = kNaN | 0x8000;
  std::vector<std::byte> back = ThereAndBack(*codec, frame);
  for (uint32_t page = 0; page < layout.pages(); ++page) {
    for (const uint16_t number : PageOf(back, layout, page)) {
      ASSERT_EQ(std::isnan(F16ToF32(number)), page == 1 || page == 5) << page;
    }
  }
}

TEST(FrameCodec, OthersAreRefusedByName) {
  EXPECT_EQ(MakeFrameCodec("int4", Layout()).status().message(),
            "no way to write blocks is called \"int4\"; there are none and int8");
  const PageLayout q8 = PageLayout::Dense(KvType::kQ8, 1, 1, 64, 64);
  EXPECT_EQ(MakeFrameCodec("int8", q8).status().message(), "int8 is for keys and values of f16; these are q8 already");
  EXPECT_TRUE(MakeFrameCodec("none", q8).ok());
}

}  // namespace
}  // namespace kvist::kv
