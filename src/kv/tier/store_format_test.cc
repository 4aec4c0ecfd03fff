#include "kv/tier/store_format.h"

#include <gtest/gtest.h>

#include "base/prng.h"
#include "kv/tier/store_format_testutil.h"

namespace kvist::kv {
namespace {

constexpr StorePlace kPlace{.store = {3, 4}, .segment = 5, .offset = 8192};

BlockFacts SomeFacts(uint64_t seed) {
  Prng prng(seed);
  const uint32_t payload = static_cast<uint32_t>(1 + prng.Below(600000));
  return {.id = {prng.Next(), prng.Next()},
          .parent = {prng.Next(), prng.Next()},
          .origin = {.fingerprint = prng.Next(),
                     .cache_namespace = prng.Next(),
                     .tenant = TenantId{static_cast<uint32_t>(prng.Next())},
                     .codec = prng.Below(2) == 0 ? KvType::kF16 : KvType::kQ8},
          .ops_signature = prng.Next(),
          .payload_bytes = payload,
          .section_bytes = SectionBytesFor(payload, 1 + prng.Below(40000)),
          .tokens = static_cast<uint16_t>(1 + prng.Below(kBlockTokens)),
          .generation = static_cast<uint8_t>(prng.Below(256))};
}

RecordHeader SomeHeader(uint64_t seed) {
  RecordHeader header{.facts = SomeFacts(seed)};
  Prng prng(seed + 77);
  for (uint32_t i = 0; i < header.facts.tokens; ++i) header.tokens[i].value = static_cast<uint32_t>(prng.Next());
  for (uint32_t i = 0; i < header.facts.sections(); ++i) header.sections[i] = {prng.Next(), prng.Next()};
  return header;
}

std::vector<std::byte> Encoded(const RecordHeader& header, const StorePlace& place = kPlace) {
  std::vector<std::byte> page(kStorePage);
  EncodeRecordHeader(header, place, page);
  return page;
}

TEST(StoreFormat, HeadersComeBack) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const RecordHeader header = SomeHeader(seed);
    ASSERT_LE(header.facts.sections(), kSectionsMax);
    const absl::StatusOr<RecordHeader> back = ParseRecordHeader(Encoded(header), kPlace, header.facts.record_bytes());
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, header);
    EXPECT_TRUE(absl::IsInvalidArgument(
        ParseRecordHeader(Encoded(header), kPlace, header.facts.record_bytes() - kStorePage).status()));
  }
}

TEST(StoreFormat, EveryChangedByteIsFoundOut) {
  const RecordHeader header = SomeHeader(1);
  const std::vector<std::byte> page = Encoded(header);
  for (size_t i = 0; i < kStorePage; i += i < 512 ? 1 : 61) {
    std::vector<std::byte> changed = page;
    changed[i] ^= std::byte{0x20};
    EXPECT_FALSE(ParseRecordHeader(changed, kPlace, 1u << 20).ok()) << i;
    // With the right checksum the rest is what it says, or is refused; never a crash.
    SealPage(changed);
    const absl::StatusOr<RecordHeader> parsed = ParseRecordHeader(changed, kPlace, 1u << 20);
    EXPECT_FALSE(parsed.ok() && *parsed == header);
  }
}

TEST(StoreFormat, APageOfAnotherPlaceIsNotRead) {
  const std::vector<std::byte> page = Encoded(SomeHeader(2));
  for (const StorePlace& place :
       {StorePlace{{3, 5}, 5, 8192}, StorePlace{{3, 4}, 6, 8192}, StorePlace{{3, 4}, 5, 4096}}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(ParseRecordHeader(page, place, 1u << 20).status()));
  }
  EXPECT_TRUE(absl::IsNotFound(ParseRecordHeader(std::vector<std::byte>(kStorePage), kPlace, 1u << 20).status()));
}

TEST(StoreFormat, IndexesComeBackAndBadOnesDoNot) {
  for (const size_t count : {0, 1, 51, 52, 300}) {
    std::vector<PlacedBlock> blocks;
    uint64_t at = 0;
    for (size_t i = 0; i < count; ++i) {
      blocks.push_back({.offset = at, .facts = SomeFacts(i)});
      at += blocks.back().facts.record_bytes() + (i % 3) * kStorePage;
    }
    const StorePlace place{.store = {3, 4}, .segment = 5, .offset = at};
    const std::string text = EncodeSegmentIndex(blocks, place);
    ASSERT_EQ(text.size(), SegmentIndexBytes(count));
    const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
    const StorePlace tail_place{.store = {3, 4}, .segment = 5, .offset = at + text.size() - kStorePage};
    const absl::StatusOr<SegmentTail> tail = ParseSegmentTail(bytes.last(kStorePage), tail_place);
    ASSERT_TRUE(tail.ok()) << tail.status();
    EXPECT_EQ(tail->index_offset, at);
    const auto back = ParseSegmentIndex(bytes.first(bytes.size() - kStorePage), *tail);
    ASSERT_TRUE(back.ok()) << back.status();
    ASSERT_EQ(back->size(), count);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ((*back)[i].offset, blocks[i].offset);
      EXPECT_EQ((*back)[i].facts, blocks[i].facts);
    }
    if (count == 0) continue;
    std::string damaged = text;
    damaged[40] = static_cast<char>(damaged[40] ^ 1);
    const std::span<const std::byte> entries = std::as_bytes(std::span(damaged)).first(text.size() - kStorePage);
    EXPECT_TRUE(absl::IsDataLoss(ParseSegmentIndex(entries, *tail).status()));
    // Records that overlap, by somebody who knows how checksums are made.
    std::vector<PlacedBlock> overlapping = blocks;
    overlapping.push_back(overlapping.front());
    const std::string wrong = EncodeSegmentIndex(overlapping, place);
    const std::span<const std::byte> wrong_bytes = std::as_bytes(std::span(wrong));
    const auto wrong_tail = ParseSegmentTail(wrong_bytes.last(kStorePage),
                                             {.store = {3, 4}, .segment = 5, .offset = at + wrong.size() - kStorePage});
    ASSERT_TRUE(wrong_tail.ok());
    EXPECT_TRUE(
        absl::IsInvalidArgument(ParseSegmentIndex(wrong_bytes.first(wrong.size() - kStorePage), *wrong_tail).status()));
  }
}

TEST(StoreFormat, IdentityAndNames) {
  const StoreIdentity identity{.id = {1, 2}, .segment_bytes = 1u << 20};
  std::string text = EncodeStoreIdentity(identity);
  for (const size_t damaged : {size_t{0}, size_t{kStorePage}}) {
    std::string one = text;
    one[damaged + 50] = 'x';
    const auto back = ParseStoreIdentity(std::as_bytes(std::span(one)));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->id, identity.id);
  }
  text[8] = text[kStorePage + 8] = 9;
  EXPECT_TRUE(absl::IsUnimplemented(ParseStoreIdentity(std::as_bytes(std::span(text))).status()));
  EXPECT_FALSE(ParseStoreIdentity({}).ok());
  EXPECT_EQ(SegmentName(42), "0000000042.kv");
  EXPECT_EQ(SegmentNumber("0000000042.kv"), 42u);
  EXPECT_EQ(SegmentNumber(SegmentName(UINT64_MAX)), UINT64_MAX);
  for (const char* name : {"", "42.kv", "0000000042", "0000000042.kv2", "store", "000000004a.kv", "-000000042.kv"}) {
    EXPECT_EQ(SegmentNumber(name), 0u) << name;
  }
}

}  // namespace
}  // namespace kvist::kv
