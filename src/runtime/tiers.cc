#include "runtime/tiers.h"

#include <charconv>
#include <chrono>
#include <filesystem>

#include <xxhash.h>

#include "base/byte_size.h"
#include "base/prng.h"
#include "base/status.h"
#include "kv/tier/tier_stack.h"
#include "platform/disk_calibration.h"
#include "platform/partial_file.h"
#include "platform/real_disk.h"
#include "platform/text_file.h"

namespace kvist::runtime {
namespace {

constexpr size_t kTextBytesMax = size_t{1} << 20;
/// Models whose digests a folder keeps.
constexpr size_t kDigestsMax = 64;
/// A file that was changed so shortly before may change again under the same stamp.
constexpr int64_t kTickNs = 2'000'000'000;
/// Blocks that a store must have room for.
constexpr uint64_t kBlocksMin = 64;

/// Stamps of all files as one word; nullopt when they may not say everything.
std::optional<uint64_t> StampsOf(const GgufFile& file) {
  const int64_t now_ns = std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  uint64_t word = file.files().size();
  for (const MappedFile& part : file.files()) {
    const absl::StatusOr<FileStamp> stamp = part.Stamp();
    if (!stamp.ok() || stamp->changed_ns > now_ns - kTickNs) return std::nullopt;
    for (const uint64_t value :
         {stamp->bytes, static_cast<uint64_t>(stamp->modified_ns), static_cast<uint64_t>(stamp->changed_ns)}) {
      word = Mix64(word ^ value);
    }
  }
  return word;
}

/// Lines of two numbers in hexadecimal: stamps and digest.
std::vector<std::pair<uint64_t, uint64_t>> ParseDigests(std::string_view text) {
  std::vector<std::pair<uint64_t, uint64_t>> digests;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    std::pair<uint64_t, uint64_t> entry;
    const auto first = std::from_chars(line.data(), line.data() + line.size(), entry.first, 16);
    if (first.ec != std::errc() || first.ptr == line.data() + line.size()) continue;
    const auto second = std::from_chars(first.ptr + 1, line.data() + line.size(), entry.second, 16);
    if (second.ec == std::errc()) digests.push_back(entry);
  }
  return digests;
}

absl::Status WritePrivate(const std::string& path, std::string_view text) {
  KVIST_ASSIGN_OR_RETURN(PartialFile file, PartialFile::Open(
                                               path, [] { return false; }, FileAccess::kPrivate));
  KVIST_RETURN_IF_ERROR(file.Truncate(0));
  KVIST_RETURN_IF_ERROR(file.Append(text));
  return file.Publish();
}

/// What is not calibrated is a guess; the rate is corrected by what reads take.
constexpr DiskSpeed::Row kSpeedGuess = {.read_bytes_per_s = 1e9};

/// How the drive reads best, as `kvist store calibrate` has measured it.
DiskSpeed::Row SpeedOf(const std::string& folder) {
  const absl::StatusOr<std::string> text = ReadTextFile(folder + "/speed", kTextBytesMax);
  if (!text.ok()) return kSpeedGuess;
  const absl::StatusOr<DiskSpeed> speed = ParseDiskSpeed(*text);
  return speed.ok() ? speed->Best() : kSpeedGuess;
}

/// With the folder, where the error does not name it.
absl::Status InFolder(const absl::Status& status, const std::string& folder) {
  const bool named = std::string(status.message()).find(folder) != std::string::npos;
  return named ? status : Annotate(status, folder);
}

absl::StatusOr<std::unique_ptr<kv::StoredBlocks>> OpenDrive(const TierOptions& options, uint64_t fingerprint,
                                                            const kv::PageLayout& layout, const kv::FrameArena& arena) {
  if (options.disk_bytes / arena.frame_bytes() < kBlocksMin) {
    return absl::InvalidArgumentError(Cat("a store of ", FormatByteSize(options.disk_bytes), " holds fewer than ",
                                          kBlocksMin, " blocks of ", FormatByteSize(arena.frame_bytes())));
  }
  // A calibration only raises what is read at once: with fewer requests under way a text comes back more slowly than
  // its long reads suggest, as the drive is looked at between steps only.
  const DiskSpeed::Row speed = SpeedOf(options.folder);
  absl::StatusOr<std::unique_ptr<Disk>> disk = OpenRealDisk(
      options.folder, {.create = !options.read_only, .depth_max = std::max(speed.depth, RealDiskOptions{}.depth_max)});
  if (!disk.ok()) return disk.status();
  absl::StatusOr<std::unique_ptr<kv::BlockStore>> store = kv::BlockStore::Open(
      *std::move(disk), {.size_max = options.disk_bytes,
                         .read_bytes = std::max(speed.block_bytes, kv::BlockStoreOptions{}.read_bytes),
                         .section_bytes = layout.layer_bytes(),
                         .read_only = options.read_only});
  if (absl::IsUnavailable(store.status())) {
    return absl::UnavailableError(
        Cat(options.folder, ": another process writes to this store; --kv-disk-read-only reads what it has stored"));
  }
  if (!store.ok()) return InFolder(store.status(), options.folder);
  return std::make_unique<kv::StoredBlocks>(
      *std::move(store), arena,
      kv::StoredBlocksOptions{.fingerprint = fingerprint,
                              .codec = layout.type(),
                              .read_bytes_per_s = std::max(speed.read_bytes_per_s, 1.0)});
}

absl::StatusOr<std::unique_ptr<kv::RamBlocks>> OpenColdMemory(const TierOptions& options, const kv::PageLayout& layout,
                                                              const kv::FrameArena& arena) {
  KVIST_ASSIGN_OR_RETURN(std::unique_ptr<kv::FrameCodec> codec, kv::MakeFrameCodec(options.cold_codec, layout));
  if (options.cold_memory_bytes < codec->encoded_bytes()) {
    return absl::InvalidArgumentError(Cat("cold memory of ", FormatByteSize(options.cold_memory_bytes),
                                          " holds no block of ", FormatByteSize(codec->encoded_bytes())));
  }
  return kv::RamBlocks::Create(arena, std::move(codec), {.bytes_max = options.cold_memory_bytes});
}

}  // namespace

absl::StatusOr<uint64_t> ModelDigest(const GgufFile& file, const std::string& folder) {
  // The folder is made, and its rights are looked at, where everybody does it.
  KVIST_RETURN_IF_ERROR(OpenRealDisk(folder, {.create = true}).status());
  const std::string path = folder + "/models";
  const absl::StatusOr<std::string> text = ReadTextFile(path, kTextBytesMax);
  std::vector<std::pair<uint64_t, uint64_t>> known;
  if (text.ok()) known = ParseDigests(*text);
  const std::optional<uint64_t> stamps = StampsOf(file);
  for (const auto& [of, digest] : known) {
    if (of == stamps) return digest;
  }
  uint64_t digest = 0;
  for (const MappedFile& part : file.files()) {
    digest = Mix64(digest ^ XXH3_64bits(part.bytes().data(), part.bytes().size()));
  }
  if (!stamps) return digest;
  known.insert(known.begin(), {*stamps, digest});
  known.resize(std::min(known.size(), kDigestsMax));
  std::string lines;
  for (const auto& [of, of_digest] : known) {
    char line[40];
    lines.append(line, static_cast<size_t>(std::snprintf(line, sizeof line, "%016llx %016llx\n",
                                                         static_cast<unsigned long long>(of),
                                                         static_cast<unsigned long long>(of_digest))));
  }
  (void)WritePrivate(path, lines);  // Else it is computed again next time.
  return digest;
}

absl::StatusOr<OpenedTiers> OpenTiers(const TierOptions& options, uint64_t fingerprint, const kv::PageLayout& layout,
                                      const kv::FrameArena& arena) {
  OpenedTiers tiers;
  tiers.admission = kv::MakeAdmissionPolicy(options.admission, {.bytes_per_day = options.written_bytes_per_day});
  if (tiers.admission == nullptr) {
    return absl::InvalidArgumentError(Cat("nothing that decides what is stored is called \"", options.admission, "\""));
  }
  std::unique_ptr<kv::StoredBlocks> drive;
  if (!options.folder.empty()) {
    KVIST_ASSIGN_OR_RETURN(drive, OpenDrive(options, fingerprint, layout, arena));
  }
  if (options.cold_memory_bytes == 0) {
    tiers.cold = std::move(drive);
    return tiers;
  }
  KVIST_ASSIGN_OR_RETURN(std::unique_ptr<kv::RamBlocks> memory, OpenColdMemory(options, layout, arena));
  tiers.cold = std::make_unique<kv::TierStack>(std::move(memory), std::move(drive), arena,
                                               kv::TierStackOptions{.paced = options.paced});
  return tiers;
}

}  // namespace kvist::runtime
