#pragma once

/// @file
/// The bytes of a store of KV blocks on a drive (docs/formats/kv-store.md): plain data to bytes and back. A record is a
/// page of header and a payload in whole pages; a sealed segment file ends with an index of its records. Everything
/// that is read says where it should lie, so that what was written to a wrong place is found out. Trusts nothing: every
/// size is checked before it is used. Pure. Non-goals: files (segment_file.h), which blocks there are (store_index.h).

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/hash128.h"
#include "base/units.h"
#include "kv/content_id.h"
#include "kv/page_layout.h"
#include "platform/direct_io.h"

namespace kvist::kv {

/// Raised with every change of the form.
inline constexpr uint32_t kStoreVersion = 1;
/// Everything in a store begins at a multiple of this.
inline constexpr uint64_t kStorePage = kDirectAlignment;
/// A payload is checked section by section; so many at most.
inline constexpr uint32_t kSectionsMax = 128;

constexpr uint64_t StorePages(uint64_t bytes) {
  return (bytes + kStorePage - 1) / kStorePage * kStorePage;
}

/// Whose keys and values, and how they are written.
struct BlockOrigin {
  uint64_t fingerprint = 0;      ///< Of the model, its tokenizer and what else decides the bits.
  uint64_t cache_namespace = 0;  ///< As RootContentId.
  TenantId tenant;
  KvType codec = KvType::kF16;
  friend bool operator==(const BlockOrigin&, const BlockOrigin&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const BlockOrigin& o) {
    return H::combine(std::move(h), o.fingerprint, o.cache_namespace, o.tenant, static_cast<uint8_t>(o.codec));
  }
};

/// What header and index say about a record.
struct BlockFacts {
  ContentId id, parent;  ///< Parent: of the block before it, or the root's.
  BlockOrigin origin;
  uint64_t ops_signature = 0;  ///< Of the operations up to the block's end; 0 = none.
  uint32_t payload_bytes = 0;  ///< More than 0.
  uint32_t section_bytes = 0;  ///< A multiple of kStorePage; the last section may be shorter.
  uint16_t tokens = 0;         ///< 1..kBlockTokens
  uint8_t generation = 0;      ///< How often it was carried on.
  friend bool operator==(const BlockFacts&, const BlockFacts&) = default;

  uint32_t sections() const { return (payload_bytes + section_bytes - 1) / section_bytes; }
  uint64_t record_bytes() const { return kStorePage + StorePages(payload_bytes); }
};

struct RecordHeader {
  BlockFacts facts;
  std::array<TokenId, kBlockTokens> tokens = {};  ///< Zeros behind the last one.
  std::array<Hash128, kSectionsMax> sections = {};
  friend bool operator==(const RecordHeader&, const RecordHeader&) = default;
};

/// Where something lies.
struct StorePlace {
  Hash128 store;         ///< Which store.
  uint64_t segment = 0;  ///< Number of the segment file; never used twice.
  uint64_t offset = 0;   ///< In the segment.
};

/// The least section size for a payload: `wanted` in whole pages, or larger where that makes too many.
uint32_t SectionBytesFor(uint64_t payload_bytes, uint64_t wanted);

/// @param out  one page
void EncodeRecordHeader(const RecordHeader& header, const StorePlace& place, std::span<std::byte> out);

/// @param room  bytes from the record's beginning to the end of what may be records.
/// Errors: NotFound: no record begins here; InvalidArgument, with the byte; DataLoss: its checksum is wrong;
/// FailedPrecondition: a record of another place; Unimplemented: another version or codec.
absl::StatusOr<RecordHeader> ParseRecordHeader(std::span<const std::byte> page, const StorePlace& place, uint64_t room);

/// A record and where it begins.
struct PlacedBlock {
  uint64_t offset = 0;
  BlockFacts facts;
};

/// Bytes that the index of so many records takes at the end of a segment: entries, then one page.
uint64_t SegmentIndexBytes(uint64_t records);

/// @param place  where the index begins: behind the last record.
std::string EncodeSegmentIndex(std::span<const PlacedBlock> blocks, const StorePlace& place);

/// What the last page of a segment says.
struct SegmentTail {
  uint64_t index_offset = 0;
  uint64_t records = 0;
  Hash128 checksum;  ///< Of the entries.
};

/// @param page  the file's last one. @param place  where that lies. Errors: as ParseRecordHeader.
absl::StatusOr<SegmentTail> ParseSegmentTail(std::span<const std::byte> page, const StorePlace& place);

/// @param bytes  from index_offset up to the last page. Errors: InvalidArgument with the entry; DataLoss.
absl::StatusOr<std::vector<PlacedBlock>> ParseSegmentIndex(std::span<const std::byte> bytes, const SegmentTail& tail);

/// The file that makes a folder a store.
struct StoreIdentity {
  Hash128 id;  ///< By chance.
  uint64_t segment_bytes = 0;
};
/// Two pages that say the same.
std::string EncodeStoreIdentity(const StoreIdentity& identity);
/// Errors: InvalidArgument, DataLoss, Unimplemented; when both pages are wrong.
absl::StatusOr<StoreIdentity> ParseStoreIdentity(std::span<const std::byte> bytes);

/// "0000000042.kv"
std::string SegmentName(uint64_t number);
/// 0 when it is no segment's name.
uint64_t SegmentNumber(const std::string& name);

}  // namespace kvist::kv
