#include "kv/tier/frame_codec.h"

#include <immintrin.h>

#include <cstring>
#include <limits>
#include <vector>

#include "base/status.h"
#include "tensor/half.h"

namespace kvist::kv {
namespace {

/// Numbers that are converted at once; pages hold a multiple of them.
constexpr size_t kLanes = 16;
static_assert(kBlockTokens % kLanes == 0);
constexpr uint64_t kAlignment = 64;
constexpr uint16_t kMagnitude = 0x7fff, kInfinity = 0x7c00;

class CopyCodec final : public FrameCodec {
 public:
  explicit CopyCodec(uint64_t frame_bytes) : frame_bytes_(frame_bytes) {}
  std::string_view name() const override { return "none"; }
  bool lossless() const override { return true; }
  uint64_t encoded_bytes() const override { return frame_bytes_; }
  void Encode(const std::byte* frame, std::byte* out) const override { std::memcpy(out, frame, frame_bytes_); }
  void Decode(const std::byte* encoded, std::byte* frame) const override { std::memcpy(frame, encoded, frame_bytes_); }

 private:
  const uint64_t frame_bytes_;
};

__m256i LoadHalves(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

/// Bits of the greatest magnitude of f16 numbers: their order is that of integers, and NaN is above infinity.
uint16_t GreatestMagnitude(const std::byte* halves, size_t count) {
  const __m256i mask = _mm256_set1_epi16(kMagnitude);
  __m256i greatest = _mm256_setzero_si256();
  for (size_t i = 0; i < count; i += kLanes) {
    greatest = _mm256_max_epu16(greatest, _mm256_and_si256(LoadHalves(halves + i * sizeof(uint16_t)), mask));
  }
  const __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(greatest), _mm256_extracti128_si256(greatest, 1));
  // The instruction finds the least.
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi16(-1)));
  return static_cast<uint16_t>(~_mm_extract_epi16(least, 0));
}

__m256i Scaled(__m128i halves, __m256 factor) {
  return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_cvtph_ps(halves), factor));
}

/// @return the scale
float EncodePage(const std::byte* halves, size_t count, std::byte* out) {
  const uint16_t bits = GreatestMagnitude(halves, count);
  if (bits == 0 || bits >= kInfinity) {
    std::memset(out, 0, count);
    return bits == 0 ? 0 : std::numeric_limits<float>::quiet_NaN();
  }
  const float greatest = F16ToF32(bits);
  const __m256 factor = _mm256_set1_ps(127 / greatest);
  for (size_t i = 0; i < count; i += kLanes) {
    const __m256i sixteen = LoadHalves(halves + i * sizeof(uint16_t));
    const __m256i low = Scaled(_mm256_castsi256_si128(sixteen), factor);
    const __m256i high = Scaled(_mm256_extracti128_si256(sixteen, 1), factor);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), bytes);
  }
  return greatest / 127;
}

__m128i Halves(__m128i eight_bytes, __m256 scale) {
  const __m256 numbers = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight_bytes)), scale);
  return _mm256_cvtps_ph(numbers, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

void DecodePage(const std::byte* integers, size_t count, float scale, std::byte* halves) {
  const __m256 factor = _mm256_set1_ps(scale);
  for (size_t i = 0; i < count; i += kLanes) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(integers + i));
    auto* const out = reinterpret_cast<__m128i*>(halves + i * sizeof(uint16_t));
    _mm_storeu_si128(out, Halves(bytes, factor));
    _mm_storeu_si128(out + 1, Halves(_mm_srli_si128(bytes, 8), factor));
  }
}

/// Scales f32 [pages], padded to 64 bytes, then the pages' integers i8 behind each other.
class Int8Codec final : public FrameCodec {
 public:
  explicit Int8Codec(const PageLayout& layout) {
    uint64_t at = (layout.pages() * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
    for (uint32_t page = 0; page < layout.pages(); ++page) {
      const size_t count = size_t{layout.LaneOf(page).width} * kBlockTokens;
      pages_.push_back({.from = layout.PageOffset(page), .to = at, .count = count});
      at += count;
    }
    bytes_ = (at + kAlignment - 1) / kAlignment * kAlignment;
  }
  std::string_view name() const override { return "int8"; }
  bool lossless() const override { return false; }
  uint64_t encoded_bytes() const override { return bytes_; }
  void Encode(const std::byte* frame, std::byte* out) const override {
    for (size_t i = 0; i < pages_.size(); ++i) {
      const float scale = EncodePage(frame + pages_[i].from, pages_[i].count, out + pages_[i].to);
      std::memcpy(out + i * sizeof scale, &scale, sizeof scale);
    }
  }
  void Decode(const std::byte* encoded, std::byte* frame) const override {
    for (size_t i = 0; i < pages_.size(); ++i) {
      float scale = 0;
      std::memcpy(&scale, encoded + i * sizeof scale, sizeof scale);
      DecodePage(encoded + pages_[i].to, pages_[i].count, scale, frame + pages_[i].from);
    }
  }

 private:
  struct Page {
    uint64_t from = 0, to = 0;  ///< Bytes from the beginning of the frame, and of what is encoded.
    size_t count = 0;           ///< Numbers.
  };
  std::vector<Page> pages_;
  uint64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<FrameCodec> MakeCopyCodec(uint64_t frame_bytes) {
  return std::make_unique<CopyCodec>(frame_bytes);
}

absl::StatusOr<std::unique_ptr<FrameCodec>> MakeInt8Codec(const PageLayout& layout) {
  if (layout.type() != KvType::kF16) {
    return absl::InvalidArgumentError(
        Cat("int8 is for keys and values of f16; these are ", KvTypeName(layout.type()), " already"));
  }
  return std::make_unique<Int8Codec>(layout);
}

absl::StatusOr<std::unique_ptr<FrameCodec>> MakeFrameCodec(std::string_view name, const PageLayout& layout) {
  if (name == "none") return MakeCopyCodec(layout.frame_bytes());
  if (name == "int8") return MakeInt8Codec(layout);
  return absl::InvalidArgumentError(Cat("no way to write blocks is called \"", name, "\"; there are none and int8"));
}

}  // namespace kvist::kv
