#include "exec/cpu/packed_folder.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/byte_size.h"
#include "base/status.h"
#include "exec/cpu/packed_cache_format.h"
#include "platform/mapped_file.h"
#include "platform/partial_file.h"

namespace kvist::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".packed", kPartEnding = ".packed.part";
/// Nobody writes one file for so long: its writer has died.
constexpr auto kPartAgeMax = std::chrono::hours(24);
constexpr size_t kStemBytesMax = 100;

struct Entry {
  fs::path path;
  uint64_t bytes = 0;
  fs::file_time_type used;
  bool useless = false;  ///< Nothing will read it any more.
};

/// The model is gone, or the header is no header.
bool IsUseless(const fs::path& path) {
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return false;
  const std::span<const std::byte> bytes = file->bytes();
  const absl::StatusOr<uint64_t> header_bytes =
      PackedHeaderBytesOf(bytes.first(std::min<size_t>(bytes.size(), kPackedPreambleBytes)), bytes.size());
  if (!header_bytes.ok()) return !absl::IsUnimplemented(header_bytes.status());  // A newer kvist may want it.
  const absl::StatusOr<PackedCacheHeader> header = ParsePackedHeader(bytes.first(*header_bytes), bytes.size());
  std::error_code error;
  return !header.ok() || (!fs::exists(header->model_path, error) && !error);
}

std::vector<Entry> EntriesOf(const std::string& folder, const std::string& except) {
  std::vector<Entry> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    Entry entry{.path = it->path(), .bytes = it->file_size(error), .used = it->last_write_time(error)};
    if (error || path == except || !it->is_regular_file(error)) continue;
    if (path.ends_with(kPartEnding)) {
      if (path != except + ".part" && fs::file_time_type::clock::now() - entry.used > kPartAgeMax)
        fs::remove(path, error);
    } else if (path.ends_with(kEnding)) {
      entry.useless = IsUseless(entry.path);
      entries.push_back(std::move(entry));
    }
    error.clear();
  }
  return entries;
}

}  // namespace

std::string PackedFileName(const std::string& folder, const std::string& model_path) {
  const Hash128 hash = HashOf(std::as_bytes(std::span(model_path)));
  char text[32];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash.low));
  const std::string stem = fs::path(model_path).stem().string().substr(0, kStemBytesMax);
  return (fs::path(folder) / Cat(stem, "-", text, ".v", kPackedCacheVersion, kEnding)).string();
}

absl::Status PrepareFolder(const std::string& folder) {
  std::error_code error;
  if (fs::is_directory(folder, error)) return absl::OkStatus();
  fs::create_directories(folder, error);
  if (!error) fs::permissions(folder, fs::perms::owner_all, error);
  return error ? absl::ErrnoToStatus(error.value(), folder) : absl::OkStatus();
}

absl::Status MakeRoom(const std::string& folder, const std::string& path, uint64_t bytes, uint64_t bytes_max) {
  if (bytes > bytes_max) {
    return absl::ResourceExhaustedError(
        Cat(folder, ": ", FormatByteSize(bytes), " are more than the limit of ", FormatByteSize(bytes_max)));
  }
  std::vector<Entry> entries = EntriesOf(folder, path);
  std::ranges::sort(
      entries, [](const Entry& a, const Entry& b) { return a.useless != b.useless ? a.useless : a.used < b.used; });
  uint64_t total = bytes;
  for (const Entry& entry : entries) total += entry.bytes;
  for (const Entry& entry : entries) {
    if (!entry.useless && total <= bytes_max) break;
    std::error_code error;
    if (fs::remove(entry.path, error)) total -= entry.bytes;
  }
  // Twice: a cache must not be what fills a disk.
  if (const uint64_t free_bytes = FreeDiskBytes(folder); free_bytes / 2 < bytes) {
    return absl::ResourceExhaustedError(Cat(folder, ": ", FormatByteSize(bytes), " are more than half of the ",
                                            FormatByteSize(free_bytes), " that are free"));
  }
  return absl::OkStatus();
}

void MarkUsed(const std::string& path) {
  std::error_code ignored;
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
}

}  // namespace kvist::exec
