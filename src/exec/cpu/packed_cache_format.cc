#include "exec/cpu/packed_cache_format.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>

#include "base/check.h"
#include "base/status.h"
#include "platform/file_reader.h"

namespace kvist::exec {
namespace {

constexpr std::string_view kMagic = "kvistpak";
constexpr uint64_t kFixedBytes = 72, kStampBytes = 24, kHashBytes = 8;

constexpr uint64_t RoundUp(uint64_t bytes, uint64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

/// Bytes of a header, checksum and padding included.
uint64_t HeaderBytes(uint64_t stamps, uint64_t path_bytes, uint64_t chunks) {
  return RoundUp(kFixedBytes + stamps * kStampBytes + RoundUp(path_bytes, 8) + (chunks + 1) * kHashBytes,
                 kDirectAlignment);
}

template <class T>
void Append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// Walks a header whose length has been checked.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T Next() {
    T value;
    std::memcpy(&value, Take(sizeof(T)), sizeof(T));
    return value;
  }
  Hash128 NextHash() {
    const uint64_t low = Next<uint64_t>();
    return {low, Next<uint64_t>()};
  }
  const std::byte* Take(uint64_t bytes) {
    KVIST_CHECK(bytes <= bytes_.size() - at_);
    at_ += bytes;
    return bytes_.data() + at_ - bytes;
  }
  std::span<const std::byte> Rest() const { return bytes_.subspan(at_); }

 private:
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
};

uint64_t ChecksumOf(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

bool AllZero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

uint64_t PackedHeaderBytes(const PackedCacheHeader& header) {
  return HeaderBytes(header.stamps.size(), header.model_path.size(), header.chunk_hashes.size());
}

uint64_t PackedFileBytes(const PackedCacheHeader& header) {
  return PackedHeaderBytes(header) + header.data_bytes;
}

std::string EncodePackedHeader(const PackedCacheHeader& header) {
  KVIST_CHECK(header.data_bytes > 0 && header.chunk_hashes.size() == PackedChunks(header.data_bytes));
  KVIST_CHECK(!header.stamps.empty());
  const uint64_t bytes = PackedHeaderBytes(header);
  KVIST_CHECK(bytes <= std::numeric_limits<uint32_t>::max());
  std::string out;
  out.reserve(bytes);
  out += kMagic;
  Append(out, kPackedCacheVersion);
  Append(out, static_cast<uint32_t>(bytes));
  Append(out, header.data_bytes);
  Append(out, kPackedChunkBytes);
  Append(out, header.layout);
  Append(out, header.content);
  Append(out, static_cast<uint32_t>(header.stamps.size()));
  Append(out, static_cast<uint32_t>(header.model_path.size()));
  KVIST_CHECK(out.size() == kFixedBytes);
  for (const FileStamp& stamp : header.stamps) {
    Append(out, stamp.bytes);
    Append(out, stamp.modified_ns);
    Append(out, stamp.changed_ns);
  }
  out += header.model_path;
  out.resize(RoundUp(out.size(), 8));
  for (const uint64_t hash : header.chunk_hashes) Append(out, hash);
  out.resize(bytes - kHashBytes);
  Append(out, ChecksumOf(std::as_bytes(std::span(out))));
  return out;
}

absl::StatusOr<uint64_t> PackedHeaderBytesOf(std::span<const std::byte> preamble, uint64_t file_bytes) {
  if (preamble.size() < kPackedPreambleBytes || std::memcmp(preamble.data(), kMagic.data(), kMagic.size()) != 0) {
    return absl::InvalidArgumentError("byte 0: not a file of packed weights");
  }
  Reader reader(preamble);
  reader.Take(kMagic.size());
  if (const auto version = reader.Next<uint32_t>(); version != kPackedCacheVersion) {
    return absl::UnimplementedError(Cat("byte 8: version ", version, ", not ", kPackedCacheVersion));
  }
  const uint64_t bytes = reader.Next<uint32_t>();
  if (bytes == 0 || bytes % kDirectAlignment != 0 || bytes > file_bytes) {
    return absl::InvalidArgumentError(Cat("byte 12: a header of ", bytes, " bytes in a file of ", file_bytes));
  }
  return bytes;
}

absl::StatusOr<PackedCacheHeader> ParsePackedHeader(std::span<const std::byte> bytes, uint64_t file_bytes) {
  KVIST_ASSIGN_OR_RETURN(const uint64_t header_bytes, PackedHeaderBytesOf(bytes, file_bytes));
  if (bytes.size() != header_bytes) {
    return absl::InvalidArgumentError(
        Cat("byte 12: a header of ", header_bytes, " bytes, but ", bytes.size(), " came"));
  }
  uint64_t checksum;
  std::memcpy(&checksum, bytes.data() + header_bytes - kHashBytes, kHashBytes);
  bytes = bytes.first(header_bytes - kHashBytes);
  if (ChecksumOf(bytes) != checksum) return absl::DataLossError("the header's checksum is wrong");
  Reader reader(bytes);
  reader.Take(kPackedPreambleBytes);
  PackedCacheHeader header;
  header.data_bytes = reader.Next<uint64_t>();
  if (header.data_bytes == 0 || header.data_bytes != file_bytes - header_bytes) {
    return absl::InvalidArgumentError(
        Cat("byte 16: ", header.data_bytes, " bytes of data, but ", file_bytes - header_bytes, " lie in the file"));
  }
  if (const auto chunk = reader.Next<uint64_t>(); chunk != kPackedChunkBytes) {
    return absl::InvalidArgumentError(Cat("byte 24: chunks of ", chunk, " bytes, not ", kPackedChunkBytes));
  }
  header.layout = reader.NextHash();
  header.content = reader.NextHash();
  const auto stamps = reader.Next<uint32_t>(), path_bytes = reader.Next<uint32_t>();
  const uint64_t chunks = PackedChunks(header.data_bytes);
  if (stamps == 0 || HeaderBytes(stamps, path_bytes, chunks) != header_bytes) {
    return absl::InvalidArgumentError(Cat("byte 64: ", stamps, " files, a path of ", path_bytes, " bytes and ", chunks,
                                          " chunks do not make a header of ", header_bytes));
  }
  header.stamps.resize(stamps);
  for (FileStamp& stamp : header.stamps) {
    stamp.bytes = reader.Next<uint64_t>();
    stamp.modified_ns = reader.Next<int64_t>();
    stamp.changed_ns = reader.Next<int64_t>();
  }
  header.model_path.assign(reinterpret_cast<const char*>(reader.Take(path_bytes)), path_bytes);
  const uint64_t padding = RoundUp(path_bytes, 8) - path_bytes;
  if (!AllZero({reader.Take(padding), padding})) return absl::InvalidArgumentError("bytes behind the path are not 0");
  header.chunk_hashes.resize(chunks);
  for (uint64_t& hash : header.chunk_hashes) hash = reader.Next<uint64_t>();
  if (!AllZero(reader.Rest())) return absl::InvalidArgumentError("bytes behind the checksums are not 0");
  return header;
}

}  // namespace kvist::exec
