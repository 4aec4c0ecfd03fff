#include "exec/cpu/packed_cache.h"

#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/byte_size.h"
#include "base/check.h"
#include "base/status.h"
#include "exec/cpu/packed_folder.h"
#include "platform/file_reader.h"
#include "platform/partial_file.h"

namespace kvist::exec {
namespace {

/// A file that was changed so shortly before it is looked at may change again without another stamp: clocks of file
/// systems tick up to two seconds apart.
constexpr int64_t kTickNs = 2'000'000'000;
constexpr uint64_t kWritebackBytes = uint64_t{64} << 20;

int64_t NowNs() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

uint64_t HashChunk(const std::byte* data, uint64_t chunk, uint64_t data_bytes) {
  const uint64_t begin = chunk * kPackedChunkBytes;
  return XXH3_64bits(data + begin, std::min(kPackedChunkBytes, data_bytes - begin));
}

std::span<const char> Chars(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

absl::StatusOr<PackedCacheHeader> ReadHeader(const MappedFile& file) {
  const std::span<const std::byte> bytes = file.bytes();
  KVIST_ASSIGN_OR_RETURN(
      const uint64_t header_bytes,
      PackedHeaderBytesOf(bytes.first(std::min<uint64_t>(bytes.size(), kPackedPreambleBytes)), bytes.size()));
  return ParsePackedHeader(bytes.first(header_bytes), bytes.size());
}

/// Brings all data into the page cache and this process's page tables, and checks them.
absl::Status CheckChunks(const MappedFile& file, const std::string& path, const PackedCacheHeader& header,
                         const SettlingMap& map, ThreadPool& pool, const LoadProgress& progress, bool& cold) {
  cold = file.CachedShare() < kWarmShare;
  KVIST_ASSIGN_OR_RETURN(const FileReader reader, FileReader::Open(file, path, FileReader::Mode::kBuffered));
  std::optional<ThreadPool> readers;
  if (cold) readers.emplace(std::max(kColdReaders, pool.threads()));
  ThreadPool& team = readers ? *readers : pool;
  std::vector<ReadBuffer> buffers(team.threads());
  const uint64_t begin = PackedHeaderBytes(header), bytes = header.data_bytes;
  std::atomic<uint64_t> done{0};
  const auto check = [&](uint32_t chunk, uint32_t worker) -> absl::Status {
    const uint64_t offset = chunk * kPackedChunkBytes, size = std::min(kPackedChunkBytes, bytes - offset);
    if (cold) {  // A map is read in small pieces that follow each other; these are large and side by side.
      KVIST_RETURN_IF_ERROR(reader.Read(begin + offset, size, buffers[worker]).status());
    }
    KVIST_RETURN_IF_ERROR(Annotate(map.Populate(offset, size), path));
    if (XXH3_64bits(map.data() + offset, size) != header.chunk_hashes[chunk]) {
      return absl::DataLossError(
          Cat("the checksum of bytes ", begin + offset, " to ", begin + offset + size, " is wrong"));
    }
    const uint64_t so_far = done.fetch_add(size) + size;
    if (worker == 0 && progress) progress(so_far, bytes);
    return absl::OkStatus();
  };
  KVIST_RETURN_IF_ERROR(ForEachUntilError(team, static_cast<uint32_t>(header.chunk_hashes.size()), check));
  if (progress) progress(bytes, bytes);
  return absl::OkStatus();
}

}  // namespace

absl::Status Settle(MappedWeights& weights, const std::function<bool()>& go_on) {
  static_assert(kPackedChunkBytes == kSettlePieceBytes);
  for (uint32_t i = 0; i < weights.map.pieces(); ++i) {
    if (!go_on()) return absl::CancelledError("no time to settle");
    // The page cache may have dropped a page since it was checked, and read it again.
    const uint64_t bytes = std::min(kPackedChunkBytes, weights.map.size() - i * kPackedChunkBytes);
    if (XXH3_64bits(weights.map.CopyPiece(i), bytes) != weights.chunk_hashes[i]) continue;
    KVIST_RETURN_IF_ERROR(weights.map.MovePiece(i));
  }
  return absl::OkStatus();
}

absl::StatusOr<PackedCache> PackedCache::For(Options options, Model model) {
  PackedCache cache;
  KVIST_ASSIGN_OR_RETURN(cache.stamps_, model.stamps());
  KVIST_CHECK(!cache.stamps_.empty() && model.data_bytes > 0);
  std::error_code ignored;
  if (const auto real = std::filesystem::canonical(model.path, ignored); !real.empty()) model.path = real.string();
  cache.path_ = PackedFileName(options.folder, model.path);
  cache.options_ = std::move(options);
  cache.model_ = std::move(model);
  return cache;
}

absl::StatusOr<PackedCacheHeader> PackedCache::Open(MappedFile& file) const {
  KVIST_ASSIGN_OR_RETURN(file, MappedFile::Open(path_));
  KVIST_ASSIGN_OR_RETURN(PackedCacheHeader header, ReadHeader(file));
  if (header.layout != model_.layout || header.data_bytes != model_.data_bytes || header.model_path != model_.path ||
      header.stamps.size() != stamps_.size()) {
    return absl::FailedPreconditionError("made from another model, or by another version of kvist");
  }
  return header;
}

absl::Status PackedCache::CheckContent(const PackedCacheHeader& header, const ContentHash& content) const {
  if (header.stamps == stamps_) return absl::OkStatus();
  KVIST_ASSIGN_OR_RETURN(const Hash128 hash, content());
  if (hash != header.content) return absl::FailedPreconditionError("the model file has changed");
  PackedCacheHeader confirmed = header;
  confirmed.stamps = StampsToKeep();
  // In place: a reader who sees half of it sees a wrong checksum, and packs.
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file << EncodePackedHeader(confirmed);
  return absl::OkStatus();
}

absl::StatusOr<MappedWeights> PackedCache::Map(ThreadPool& pool, const ContentHash& content,
                                               const LoadProgress& progress, bool& cold) const {
  MappedFile file;
  KVIST_ASSIGN_OR_RETURN(PackedCacheHeader header, Open(file));
  KVIST_RETURN_IF_ERROR(CheckContent(header, content));
  MappedWeights weights;
  KVIST_ASSIGN_OR_RETURN(weights.map, SettlingMap::Map(file, PackedHeaderBytes(header), header.data_bytes));
  KVIST_RETURN_IF_ERROR(CheckChunks(file, path_, header, weights.map, pool, progress, cold));
  weights.chunk_hashes = std::move(header.chunk_hashes);
  MarkUsed(path_);
  return weights;
}

std::vector<FileStamp> PackedCache::StampsToKeep() const {
  absl::StatusOr<std::vector<FileStamp>> now = model_.stamps();
  std::vector<FileStamp> keep = stamps_;
  for (size_t i = 0; i < keep.size(); ++i) {
    const bool unchanged = now.ok() && i < now->size() && (*now)[i] == keep[i];
    if (!unchanged || keep[i].changed_ns > NowNs() - kTickNs) keep[i].changed_ns = 0;  // Equal to none.
  }
  return keep;
}

PackedCacheHeader PackedCache::HeaderFor(const Hash128& content) const {
  return {.layout = model_.layout,
          .content = content,
          .model_path = model_.path,
          .stamps = StampsToKeep(),
          .data_bytes = model_.data_bytes,
          .chunk_hashes = std::vector<uint64_t>(PackedChunks(model_.data_bytes))};
}

absl::Status PackedCache::Write(std::span<const std::byte> data, const Hash128& content,
                                const std::function<bool()>& go_on) const {
  KVIST_CHECK(data.size() == model_.data_bytes);
  KVIST_RETURN_IF_ERROR(PrepareFolder(options_.folder));
  KVIST_ASSIGN_OR_RETURN(PartialFile file, PartialFile::Open(
                                               path_, [] { return false; }, FileAccess::kPrivate));
  const auto write = [&]() -> absl::Status {
    KVIST_RETURN_IF_ERROR(file.Truncate(0));  // Left by a process that ended too early.
    PackedCacheHeader header = HeaderFor(content);
    KVIST_RETURN_IF_ERROR(MakeRoom(options_.folder, path_, PackedFileBytes(header), options_.folder_bytes_max));
    for (uint64_t i = 0; i < header.chunk_hashes.size() && go_on(); ++i) {
      header.chunk_hashes[i] = HashChunk(data.data(), i, data.size());
    }
    KVIST_RETURN_IF_ERROR(file.Append(EncodePackedHeader(header)));
    for (uint64_t at = 0; at < data.size(); at += kPackedChunkBytes) {
      if (!go_on()) return absl::CancelledError(Cat(path_, ": no time to write it"));
      KVIST_RETURN_IF_ERROR(file.Append(Chars(data.subspan(at, std::min(kPackedChunkBytes, data.size() - at)))));
      if (at % kWritebackBytes == 0) file.BeginWriteback();
    }
    return file.Publish();
  };
  const absl::Status status = write();
  if (!status.ok()) file.Discard();
  return status;
}

absl::StatusOr<MappedWeights> PackedCache::Build(ThreadPool& pool,
                                                 const std::function<absl::StatusOr<Hash128>(std::byte*)>& pack) const {
  KVIST_RETURN_IF_ERROR(PrepareFolder(options_.folder));
  KVIST_ASSIGN_OR_RETURN(PartialFile file, PartialFile::Open(
                                               path_, [] { return true; }, FileAccess::kPrivate));
  MappedWeights weights;
  const auto build = [&]() -> absl::Status {
    KVIST_RETURN_IF_ERROR(file.Truncate(0));
    PackedCacheHeader header = HeaderFor({});
    const uint64_t bytes = PackedFileBytes(header), data_begin = PackedHeaderBytes(header);
    KVIST_RETURN_IF_ERROR(MakeRoom(options_.folder, path_, bytes, std::max(bytes, options_.folder_bytes_max)));
    KVIST_ASSIGN_OR_RETURN(const std::span<std::byte> map, file.AllocateAndMap(bytes));
    KVIST_ASSIGN_OR_RETURN(header.content, pack(map.data() + data_begin));
    header.stamps = StampsToKeep();
    pool.ForEach(static_cast<uint32_t>(header.chunk_hashes.size()), [&](uint32_t i) {
      header.chunk_hashes[i] = HashChunk(map.data() + data_begin, i, header.data_bytes);
    });
    const std::string bytes_of_header = EncodePackedHeader(header);
    std::ranges::copy(std::as_bytes(std::span(bytes_of_header)), map.begin());
    weights.chunk_hashes = std::move(header.chunk_hashes);
    return file.Publish();
  };
  if (const absl::Status status = build(); !status.ok()) {
    file.Discard();
    return status;
  }
  KVIST_ASSIGN_OR_RETURN(const MappedFile whole, MappedFile::Open(path_));
  if (whole.bytes().size() < model_.data_bytes) return absl::DataLossError(Cat(path_, ": replaced meanwhile"));
  KVIST_ASSIGN_OR_RETURN(weights.map,
                         SettlingMap::Map(whole, whole.bytes().size() - model_.data_bytes, model_.data_bytes));
  return weights;
}

}  // namespace kvist::exec
