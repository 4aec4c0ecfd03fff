#include "kv/tier/segment_file.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/status.h"

namespace kvist::kv {
namespace {

/// Read at once at a segment's end: the index of most segments, so that opening a store takes one read for each.
constexpr uint64_t kTailBytes = uint64_t{64} << 10;
/// Read at once where records are looked for.
constexpr uint64_t kWindowBytes = uint64_t{256} << 10;

StorePlace At(const StorePlace& place, uint64_t offset) {
  return {.store = place.store, .segment = place.segment, .offset = offset};
}

std::optional<SegmentContents> ReadIndex(Disk& disk, DiskFile file, const StorePlace& place, uint64_t file_bytes) {
  if (file_bytes < kStorePage || file_bytes % kStorePage != 0) return std::nullopt;
  DiskMemory memory(std::min(file_bytes, kTailBytes));
  uint64_t begin = file_bytes - memory.size();
  const auto read = [&] {
    const absl::StatusOr<uint64_t> got = ReadNow(disk, file, begin, {memory.data(), memory.size()});
    return got.ok() && *got == memory.size();
  };
  if (!read()) return std::nullopt;
  const absl::StatusOr<SegmentTail> tail =
      ParseSegmentTail(memory.span().last(kStorePage), At(place, file_bytes - kStorePage));
  if (!tail.ok()) return std::nullopt;
  if (tail->index_offset < begin) {
    begin = tail->index_offset;
    memory = DiskMemory(file_bytes - begin);
    if (!read()) return std::nullopt;
  }
  const std::span<const std::byte> entries =
      memory.span().subspan(tail->index_offset - begin, file_bytes - kStorePage - tail->index_offset);
  absl::StatusOr<std::vector<PlacedBlock>> blocks = ParseSegmentIndex(entries, *tail);
  if (!blocks.ok()) return std::nullopt;
  return SegmentContents{
      .blocks = *std::move(blocks), .data_end = tail->index_offset, .file_bytes = file_bytes, .sealed = true};
}

/// Pages of a file, read in windows; a page that cannot be read is empty.
class PageReader {
 public:
  PageReader(Disk& disk, DiskFile file) : disk_(disk), file_(file), memory_(kWindowBytes) {}

  /// @param ahead  bytes to read at once if it is not there yet.
  std::span<const std::byte> Page(uint64_t offset, uint64_t ahead) {
    if (offset < begin_ || offset + kStorePage > end_) {
      begin_ = offset;
      const absl::StatusOr<uint64_t> got = ReadNow(disk_, file_, offset, {memory_.data(), ahead});
      end_ = begin_ + (got.ok() ? *got / kStorePage * kStorePage : 0);
      if (!got.ok() && ahead > kStorePage) return Page(offset, kStorePage);
      if (end_ == begin_) ++errors_;
    }
    if (end_ == begin_) return {};
    return memory_.span().subspan(offset - begin_, kStorePage);
  }
  uint64_t errors() const { return errors_; }

 private:
  Disk& disk_;
  const DiskFile file_;
  DiskMemory memory_;
  uint64_t begin_ = 0, end_ = 0;
  uint64_t errors_ = 0;
};

SegmentContents LookForRecords(Disk& disk, DiskFile file, const StorePlace& place, uint64_t file_bytes) {
  SegmentContents contents{.file_bytes = file_bytes};
  PageReader reader(disk, file);
  uint64_t ahead = kStorePage;  // As long as one record follows another, headers alone are read.
  for (uint64_t offset = 0; offset + kStorePage <= file_bytes;) {
    const std::span<const std::byte> page = reader.Page(offset, ahead);
    if (!page.empty()) {
      const absl::StatusOr<RecordHeader> header = ParseRecordHeader(page, At(place, offset), file_bytes - offset);
      if (header.ok()) {
        contents.blocks.push_back({.offset = offset, .facts = header->facts});
        offset += header->facts.record_bytes();
        contents.data_end = offset;
        ahead = kStorePage;
        continue;
      }
      if (std::ranges::any_of(page, [](std::byte b) { return b != std::byte{0}; })) ++contents.damaged_pages;
    }
    offset += kStorePage;
    ahead = kWindowBytes;
  }
  contents.read_errors = reader.errors();
  return contents;
}

}  // namespace

SegmentContents ReadSegment(Disk& disk, DiskFile file, const StorePlace& place) {
  const absl::StatusOr<uint64_t> file_bytes = disk.Size(file);
  if (!file_bytes.ok()) return {.read_errors = 1};
  if (std::optional<SegmentContents> contents = ReadIndex(disk, file, place, *file_bytes)) return *std::move(contents);
  return LookForRecords(disk, file, place, *file_bytes);
}

absl::Status WriteSegmentIndex(Disk& disk, DiskFile file, const StorePlace& place, std::span<const PlacedBlock> blocks,
                               uint64_t data_end) {
  const std::string index = EncodeSegmentIndex(blocks, At(place, data_end));
  const DiskMemory memory(index.size());
  std::memcpy(memory.data(), index.data(), index.size());
  KVIST_RETURN_IF_ERROR(disk.Truncate(file, data_end));
  KVIST_RETURN_IF_ERROR(WriteNow(disk, file, data_end, {memory.data(), memory.size()}));
  return SyncNow(disk, file);
}

}  // namespace kvist::kv
