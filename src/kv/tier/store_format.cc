#include "kv/tier/store_format.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include <bit>

#include "base/check.h"
#include "base/status.h"

namespace kvist::kv {
namespace {

static_assert(std::endian::native == std::endian::little);

// Each kind of page begins with its name and ends with the checksum of the page before that.
constexpr std::string_view kRecordMagic = "kvistrec", kIndexMagic = "kvistidx", kStoreMagic = "kvistkvs";
constexpr size_t kChecksumAt = kStorePage - 8;
constexpr uint64_t kEntryBytes = 80;
constexpr size_t kFactsBytes = 72;

/// Writes fields one after another.
class Writer {
 public:
  explicit Writer(std::span<std::byte> out) : out_(out) {}
  template <class T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>);
    KVIST_CHECK(at_ + sizeof(T) <= out_.size());
    std::memcpy(out_.data() + at_, &value, sizeof(T));
    at_ += sizeof(T);
  }
  void PutMagic(std::string_view magic) {
    std::memcpy(out_.data() + at_, magic.data(), magic.size());
    at_ += magic.size();
  }

 private:
  std::span<std::byte> out_;
  size_t at_ = 0;
};

/// Reads fields one after another from bytes whose number has been checked.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  T Get() {
    KVIST_CHECK(at_ + sizeof(T) <= bytes_.size());
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  void Skip(size_t bytes) { at_ += bytes; }
  size_t at() const { return at_; }
  bool RestIsZero(size_t end) const {
    return std::ranges::all_of(bytes_.subspan(at_, end - at_), [](std::byte b) { return b == std::byte{0}; });
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

uint64_t ChecksumOf(std::span<const std::byte> page) {
  return XXH3_64bits(page.data(), kChecksumAt);
}

void Seal(std::span<std::byte> page) {
  const uint64_t checksum = ChecksumOf(page);
  std::memcpy(page.data() + kChecksumAt, &checksum, sizeof(checksum));
}

/// Name, version, checksum; then place, which no other page has.
absl::Status CheckPage(std::span<const std::byte> page, std::string_view magic, const StorePlace& place) {
  KVIST_CHECK(page.size() == kStorePage);
  if (std::memcmp(page.data(), magic.data(), magic.size()) != 0) return absl::NotFoundError(Cat("not a ", magic));
  Reader reader(page);
  reader.Skip(magic.size());
  if (const auto version = reader.Get<uint32_t>(); version != kStoreVersion) {
    return absl::UnimplementedError(Cat("byte 8: version ", version, ", not ", kStoreVersion));
  }
  uint64_t checksum;
  std::memcpy(&checksum, page.data() + kChecksumAt, sizeof(checksum));
  if (ChecksumOf(page) != checksum) return absl::DataLossError("the page's checksum is wrong");
  if (reader.Get<uint32_t>() != 0) return absl::InvalidArgumentError("byte 12: not 0");
  const auto store = reader.Get<Hash128>();
  const auto segment = reader.Get<uint64_t>(), offset = reader.Get<uint64_t>();
  if (store != place.store || segment != place.segment || offset != place.offset) {
    return absl::FailedPreconditionError(
        Cat("byte 16: written for segment ", segment, " at ", offset, ", not ", place.segment, " at ", place.offset));
  }
  return absl::OkStatus();
}
constexpr size_t kPlaceEnd = 48;

/// @return behind name, version and place.
Writer BeginPage(std::span<std::byte> page, std::string_view magic, const StorePlace& place) {
  KVIST_CHECK(page.size() == kStorePage);
  std::ranges::fill(page, std::byte{0});
  Writer writer(page);
  writer.PutMagic(magic);
  writer.Put(kStoreVersion);
  writer.Put(uint32_t{0});
  writer.Put(place.store);
  writer.Put(place.segment);
  writer.Put(place.offset);
  return writer;
}

void PutFacts(Writer& writer, const BlockFacts& facts) {
  writer.Put(facts.id);
  writer.Put(facts.parent);
  writer.Put(facts.origin.fingerprint);
  writer.Put(facts.origin.cache_namespace);
  writer.Put(facts.ops_signature);
  writer.Put(facts.origin.tenant.value);
  writer.Put(facts.payload_bytes);
  writer.Put(facts.section_bytes);
  writer.Put(facts.tokens);
  writer.Put(static_cast<uint8_t>(facts.origin.codec));
  writer.Put(facts.generation);
}

/// @param room  for the record, header included.
absl::StatusOr<BlockFacts> GetFacts(Reader& reader, uint64_t room) {
  const size_t begin = reader.at();
  BlockFacts facts;
  facts.id = reader.Get<ContentId>();
  facts.parent = reader.Get<ContentId>();
  facts.origin.fingerprint = reader.Get<uint64_t>();
  facts.origin.cache_namespace = reader.Get<uint64_t>();
  facts.ops_signature = reader.Get<uint64_t>();
  facts.origin.tenant.value = reader.Get<uint32_t>();
  facts.payload_bytes = reader.Get<uint32_t>();
  facts.section_bytes = reader.Get<uint32_t>();
  facts.tokens = reader.Get<uint16_t>();
  const auto codec = reader.Get<uint8_t>();
  facts.generation = reader.Get<uint8_t>();
  KVIST_CHECK(reader.at() == begin + kFactsBytes);
  if (codec > static_cast<uint8_t>(KvType::kQ8)) return absl::UnimplementedError(Cat("codec ", codec));
  facts.origin.codec = static_cast<KvType>(codec);
  if (facts.payload_bytes == 0 || facts.record_bytes() > room) {
    return absl::InvalidArgumentError(Cat("a payload of ", facts.payload_bytes, " bytes where ", room, " have room"));
  }
  if (facts.section_bytes == 0 || facts.section_bytes % kStorePage != 0 || facts.sections() > kSectionsMax) {
    return absl::InvalidArgumentError(Cat("sections of ", facts.section_bytes, " bytes"));
  }
  if (facts.tokens == 0 || facts.tokens > kBlockTokens) return absl::InvalidArgumentError(Cat(facts.tokens, " tokens"));
  return facts;
}

}  // namespace

uint32_t SectionBytesFor(uint64_t payload_bytes, uint64_t wanted) {
  const uint64_t least = StorePages((payload_bytes + kSectionsMax - 1) / kSectionsMax);
  return static_cast<uint32_t>(std::max({least, StorePages(wanted), kStorePage}));
}

void EncodeRecordHeader(const RecordHeader& header, const StorePlace& place, std::span<std::byte> out) {
  Writer writer = BeginPage(out, kRecordMagic, place);
  PutFacts(writer, header.facts);
  for (const TokenId token : header.tokens) writer.Put(token.value);
  const uint32_t sections = header.facts.sections();
  KVIST_CHECK(sections <= kSectionsMax);
  for (uint32_t i = 0; i < sections; ++i) writer.Put(header.sections[i]);
  Seal(out);
}

absl::StatusOr<RecordHeader> ParseRecordHeader(std::span<const std::byte> page, const StorePlace& place,
                                               uint64_t room) {
  KVIST_RETURN_IF_ERROR(CheckPage(page, kRecordMagic, place));
  Reader reader(page);
  reader.Skip(kPlaceEnd);
  RecordHeader header;
  KVIST_ASSIGN_OR_RETURN(header.facts, GetFacts(reader, room));
  for (TokenId& token : header.tokens) token.value = reader.Get<uint32_t>();
  for (uint32_t i = 0; i < header.facts.sections(); ++i) header.sections[i] = reader.Get<Hash128>();
  if (!reader.RestIsZero(kChecksumAt)) return absl::InvalidArgumentError("bytes behind the checksums are not 0");
  return header;
}

uint64_t SegmentIndexBytes(uint64_t records) {
  return StorePages(records * kEntryBytes) + kStorePage;
}

std::string EncodeSegmentIndex(std::span<const PlacedBlock> blocks, const StorePlace& place) {
  std::string out(SegmentIndexBytes(blocks.size()), '\0');
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(out));
  const std::span<std::byte> entries = bytes.first(bytes.size() - kStorePage);
  for (size_t i = 0; i < blocks.size(); ++i) {
    Writer writer(entries.subspan(i * kEntryBytes, kEntryBytes));
    writer.Put(blocks[i].offset);
    PutFacts(writer, blocks[i].facts);
  }
  const StorePlace tail{place.store, place.segment, place.offset + entries.size()};
  Writer writer = BeginPage(bytes.last(kStorePage), kIndexMagic, tail);
  writer.Put(place.offset);
  writer.Put(uint64_t{blocks.size()});
  writer.Put(HashOf(entries));
  Seal(bytes.last(kStorePage));
  return out;
}

absl::StatusOr<SegmentTail> ParseSegmentTail(std::span<const std::byte> page, const StorePlace& place) {
  KVIST_RETURN_IF_ERROR(CheckPage(page, kIndexMagic, place));
  Reader reader(page);
  reader.Skip(kPlaceEnd);
  SegmentTail tail;
  tail.index_offset = reader.Get<uint64_t>();
  tail.records = reader.Get<uint64_t>();
  tail.checksum = reader.Get<Hash128>();
  if (tail.index_offset % kStorePage != 0 || tail.index_offset > place.offset ||
      tail.records > place.offset / kEntryBytes ||
      StorePages(tail.records * kEntryBytes) != place.offset - tail.index_offset) {
    return absl::InvalidArgumentError(Cat("byte ", kPlaceEnd, ": an index of ", tail.records, " records from ",
                                          tail.index_offset, " to ", place.offset));
  }
  if (!reader.RestIsZero(kChecksumAt)) return absl::InvalidArgumentError("bytes behind the checksum are not 0");
  return tail;
}

absl::StatusOr<std::vector<PlacedBlock>> ParseSegmentIndex(std::span<const std::byte> bytes, const SegmentTail& tail) {
  if (bytes.size() != StorePages(tail.records * kEntryBytes)) {
    return absl::InvalidArgumentError(Cat("an index of ", bytes.size(), " bytes for ", tail.records, " records"));
  }
  if (HashOf(bytes) != tail.checksum) return absl::DataLossError("the index's checksum is wrong");
  std::vector<PlacedBlock> blocks(tail.records);
  uint64_t free = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    Reader reader(bytes.subspan(i * kEntryBytes, kEntryBytes));
    blocks[i].offset = reader.Get<uint64_t>();
    const uint64_t offset = blocks[i].offset;
    if (offset % kStorePage != 0 || offset < free || offset >= tail.index_offset) {
      return absl::InvalidArgumentError(Cat("record ", i, " at ", offset));
    }
    absl::StatusOr<BlockFacts> facts = GetFacts(reader, tail.index_offset - offset);
    if (!facts.ok()) return Annotate(facts.status(), Cat("record ", i));
    blocks[i].facts = *facts;
    free = offset + facts->record_bytes();
  }
  return blocks;
}

std::string EncodeStoreIdentity(const StoreIdentity& identity) {
  std::string out(2 * kStorePage, '\0');
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(out));
  for (int copy = 0; copy < 2; ++copy) {
    const std::span<std::byte> page = bytes.subspan(copy * kStorePage, kStorePage);
    Writer writer = BeginPage(page, kStoreMagic, {});
    writer.Put(identity.id);
    writer.Put(identity.segment_bytes);
    Seal(page);
  }
  return out;
}

absl::StatusOr<StoreIdentity> ParseStoreIdentity(std::span<const std::byte> bytes) {
  absl::Status fault = absl::InvalidArgumentError("not a store: too short");
  for (; bytes.size() >= kStorePage; bytes = bytes.subspan(kStorePage)) {
    const std::span<const std::byte> page = bytes.first(kStorePage);
    if (absl::Status status = CheckPage(page, kStoreMagic, {}); !status.ok()) {
      fault = absl::IsNotFound(status) ? absl::InvalidArgumentError("not a store") : status;
      continue;
    }
    Reader reader(page);
    reader.Skip(kPlaceEnd);
    StoreIdentity identity;
    identity.id = reader.Get<Hash128>();
    identity.segment_bytes = reader.Get<uint64_t>();
    if (identity.segment_bytes % kStorePage == 0 && identity.segment_bytes >= 4 * kStorePage) return identity;
    fault = absl::InvalidArgumentError(Cat("segments of ", identity.segment_bytes, " bytes"));
  }
  return fault;
}

std::string SegmentName(uint64_t number) {
  const std::string digits = Cat(number);
  return std::string(digits.size() < 10 ? 10 - digits.size() : 0, '0') + digits + ".kv";
}

uint64_t SegmentNumber(const std::string& name) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && name == SegmentName(number) ? number : 0;
}

}  // namespace kvist::kv
