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

uint64_t RoundUp(uint64_t bytes) {
  return (bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
}

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

/// Reads and checks all chunks. @param target  [data_bytes rounded up], or null: then they are only checked.
absl::Status ReadChunks(const MappedFile& file, const std::string& path, const PackedCacheHeader& header,
                        ThreadPool& pool, std::byte* target, const LoadProgress& progress, bool& cold) {
  cold = file.CachedShare() < kWarmShare;
  KVIST_ASSIGN_OR_RETURN(const FileReader reader, FileReader::Open(file, path, FileReader::Mode::kBuffered));
  std::optional<ThreadPool> readers;
  if (cold) readers.emplace(std::max(kColdReaders, pool.threads()));
  ThreadPool& team = readers ? *readers : pool;
  std::vector<ReadBuffer> buffers(target == nullptr ? team.threads() : 0);
  const uint64_t begin = PackedHeaderBytes(header), bytes = header.data_bytes;
  std::atomic<uint64_t> done{0};
  const auto read = [&](uint32_t chunk, uint32_t worker) -> absl::Status {
    const uint64_t offset = chunk * kPackedChunkBytes, size = std::min(kPackedChunkBytes, bytes - offset);
    std::byte* data = target + offset;
    if (target == nullptr) {
      KVIST_ASSIGN_OR_RETURN(data, buffers[worker].Reserve(kPackedChunkBytes));
    }
    KVIST_RETURN_IF_ERROR(reader.ReadAligned(begin + offset, {data, RoundUp(size)}, size));
    if (XXH3_64bits(data, size) != header.chunk_hashes[chunk]) {
      return absl::DataLossError(
          Cat("the checksum of bytes ", begin + offset, " to ", begin + offset + size, " is wrong"));
    }
    const uint64_t so_far = done.fetch_add(size) + size;
    if (worker == 0 && progress) progress(so_far, bytes);
    return absl::OkStatus();
  };
  KVIST_RETURN_IF_ERROR(ForEachUntilError(team, static_cast<uint32_t>(header.chunk_hashes.size()), read));
  if (progress) progress(bytes, bytes);
  return absl::OkStatus();
}

}  // namespace

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

absl::Status PackedCache::Read(ThreadPool& pool, std::byte* data, const ContentHash& content,
                               const LoadProgress& progress, bool& cold) const {
  MappedFile file;
  KVIST_ASSIGN_OR_RETURN(const PackedCacheHeader header, Open(file));
  KVIST_RETURN_IF_ERROR(CheckContent(header, content));
  KVIST_RETURN_IF_ERROR(ReadChunks(file, path_, header, pool, data, progress, cold));
  MarkUsed(path_);
  return absl::OkStatus();
}

absl::StatusOr<MappedWeights> PackedCache::Map(ThreadPool& pool, const ContentHash& content,
                                               const LoadProgress& progress, bool& cold) const {
  MappedWeights weights;
  KVIST_ASSIGN_OR_RETURN(const PackedCacheHeader header, Open(weights.file));
  KVIST_RETURN_IF_ERROR(CheckContent(header, content));
  KVIST_RETURN_IF_ERROR(ReadChunks(weights.file, path_, header, pool, nullptr, progress, cold));
  weights.data = weights.file.bytes().subspan(PackedHeaderBytes(header));
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
    return file.Publish();
  };
  if (const absl::Status status = build(); !status.ok()) {
    file.Discard();
    return status;
  }
  MappedWeights weights;
  KVIST_ASSIGN_OR_RETURN(weights.file, MappedFile::Open(path_));
  weights.data = weights.file.bytes().last(model_.data_bytes);
  return weights;
}

}  // namespace kvist::exec
