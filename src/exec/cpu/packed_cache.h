#pragma once

/// @file
/// Packed weights kept on disk, so that the next start need not pack them again. A folder holds one file for each model
/// path (docs/formats/packed-cache.md); it may be deleted at any time. What is read is what was written, or a miss:
/// every chunk has a checksum, and a file appears whole or not at all. A cache fits a model whose matrices have the
/// content that was packed. That is taken for granted while the model's files have the stamps that they had then, and
/// checked by reading them otherwise. Non-goals: packing (packing.h), deciding whether a cache is wanted.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "exec/cpu/loading.h"
#include "exec/cpu/packed_cache_format.h"
#include "platform/mapped_file.h"
#include "platform/settling_map.h"
#include "platform/thread_pool.h"

namespace kvist::exec {

/// All files of a folder together; the longest unused ones go first.
inline constexpr uint64_t kPackedFolderBytesMax = uint64_t{16} << 30;

/// How a write ended: OK, or why there is no cache. Called on the writing thread.
using CacheNotice = std::function<void(const std::string& path, const absl::Status& status)>;

/// Weights in a cache that have been checked and can be used.
struct MappedWeights {
  SettlingMap map;
  std::vector<uint64_t> chunk_hashes;  ///< Chunks are pieces of the map.
};

/// Moves all pieces into huge pages. A piece whose bytes are no longer those that were checked stays where it is.
/// Errors: Cancelled when `go_on` said false; ResourceExhausted.
absl::Status Settle(MappedWeights& weights, const std::function<bool()>& go_on);

/// The place of one model's packed weights. Threads: one, but several processes at once.
class PackedCache {
 public:
  struct Options {
    std::string folder;  ///< Made when needed, for this user only.
    uint64_t folder_bytes_max = kPackedFolderBytesMax;
  };
  /// What a cache must be made from.
  struct Model {
    std::string path;  ///< Of the first file.
    /// Of the model's files as they are now.
    std::function<absl::StatusOr<std::vector<FileStamp>>()> stamps;
    Hash128 layout;
    uint64_t data_bytes = 0;
  };
  /// Hash of the model's matrices as they are now; called where stamps leave a doubt.
  using ContentHash = std::function<absl::StatusOr<Hash128>()>;

  /// Call before the model's matrices are read. Errors: those of `model.stamps`.
  static absl::StatusOr<PackedCache> For(Options options, Model model);

  const std::string& path() const { return path_; }

  /// Checks all data and maps them. @param cold  set to whether the file was not in the page cache.
  /// Errors: NotFound when there is no cache; else why it was not used.
  absl::StatusOr<MappedWeights> Map(ThreadPool& pool, const ContentHash& content, const LoadProgress& progress,
                                    bool& cold) const;

  /// Writes a cache from packed data, checks nothing. @param go_on  asked several times a second.
  /// Errors: Cancelled when `go_on` said false or another process is writing the same; ResourceExhausted when the disk
  /// or the folder's limit has no room; those of the file system.
  absl::Status Write(std::span<const std::byte> data, const Hash128& content, const std::function<bool()>& go_on) const;

  /// Makes a cache by packing right into its file, for weights larger than memory, and maps it; the folder's limit does
  /// not count. Waits for another process that does the same. @param pack  fills [data_bytes] and returns the content
  /// hash. Errors: as Write, those of `pack`.
  absl::StatusOr<MappedWeights> Build(ThreadPool& pool,
                                      const std::function<absl::StatusOr<Hash128>(std::byte*)>& pack) const;

 private:
  PackedCache() = default;

  /// Opens the file and reads its header; compares all but the model's content.
  absl::StatusOr<PackedCacheHeader> Open(MappedFile& file) const;
  absl::Status CheckContent(const PackedCacheHeader& header, const ContentHash& content) const;
  std::vector<FileStamp> StampsToKeep() const;
  PackedCacheHeader HeaderFor(const Hash128& content) const;

  Options options_;
  Model model_;
  std::vector<FileStamp> stamps_;  ///< Before the model's matrices were read.
  std::string path_;
};

}  // namespace kvist::exec
