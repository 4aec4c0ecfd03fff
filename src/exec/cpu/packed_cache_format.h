#pragma once

/// @file
/// The header of a file of packed weights (docs/formats/packed-cache.md): plain data to bytes and back. Trusts nothing:
/// every size is checked against the file before it is used. Pure. Non-goals: files, whether a header fits a model
/// (packed_cache.h).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/hash128.h"
#include "platform/mapped_file.h"

namespace kvist::exec {

/// Raised with every change of the header's form; packed data have kernels::kPackedVersion.
inline constexpr uint32_t kPackedCacheVersion = 1;
/// Data are checked chunk by chunk; the last chunk may be shorter.
inline constexpr uint64_t kPackedChunkBytes = uint64_t{2} << 20;

struct PackedCacheHeader {
  Hash128 layout;                      ///< Of what lies where in the data.
  Hash128 content;                     ///< Of the model's matrices that were packed.
  std::string model_path;              ///< Of the model's first file, for upkeep.
  std::vector<FileStamp> stamps;       ///< [model's files] when they had this content; at least one.
  uint64_t data_bytes = 0;             ///< More than 0.
  std::vector<uint64_t> chunk_hashes;  ///< [ceil(data_bytes / kPackedChunkBytes)] XXH3, 64 bits.
  friend bool operator==(const PackedCacheHeader&, const PackedCacheHeader&) = default;
};

/// Chunks that so many bytes of data have.
constexpr uint64_t PackedChunks(uint64_t data_bytes) {
  return (data_bytes + kPackedChunkBytes - 1) / kPackedChunkBytes;
}

/// Where the data begin: bytes of the header, a multiple of kDirectAlignment.
uint64_t PackedHeaderBytes(const PackedCacheHeader& header);

/// Bytes of the whole file.
uint64_t PackedFileBytes(const PackedCacheHeader& header);

/// PackedHeaderBytes long.
std::string EncodePackedHeader(const PackedCacheHeader& header);

/// Bytes at the beginning of a file that say how long its header is.
inline constexpr uint64_t kPackedPreambleBytes = 16;

/// How long the header of a file of `file_bytes` is. @param preamble  the first kPackedPreambleBytes.
/// Errors: InvalidArgument saying what is wrong at which byte; Unimplemented for another version.
absl::StatusOr<uint64_t> PackedHeaderBytesOf(std::span<const std::byte> preamble, uint64_t file_bytes);

/// @param bytes  the whole header. Errors: as above; DataLoss when its checksum is wrong.
absl::StatusOr<PackedCacheHeader> ParsePackedHeader(std::span<const std::byte> bytes, uint64_t file_bytes);

}  // namespace kvist::exec
