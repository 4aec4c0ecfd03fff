#include "cli/tier_flags.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <spdlog/spdlog.h>

#include "base/byte_size.h"
#include "base/counted.h"
#include "base/status.h"
#include "cli/ranges.h"
#include "kv/tier/block_store.h"

namespace kvist::cli {
namespace {

/// Says so where a store would like more than its drive has.
void WarnOfSmallDrive(const kv::TierFigures& tier, const std::string& folder) {
  std::error_code error;
  const uint64_t free = std::filesystem::space(folder, error).available;
  const uint64_t for_others = kv::BlockStoreOptions{}.free_bytes_min;
  const uint64_t most = tier.bytes + (free - std::min(free, for_others));
  if (error || tier.bytes_max <= most) return;
  spdlog::warn(
      "--kv-disk-size {}: the drive of {} has {} free, of which {} stay free for others: as it is, the store "
      "takes {} at most",
      FormatByteSize(tier.bytes_max), folder, FormatByteSize(free), FormatByteSize(for_others), FormatByteSize(most));
}

}  // namespace

void AddTierFlags(CLI::App& command, TierFlags& flags) {
  command
      .add_option("--kv-cold-memory", flags.cold_memory,
                  "Memory, beside --kv-memory, for keys and values that had to leave that: they are copied back "
                  "instead of computed; 0 = none, the default")
      ->check(ByteSize());
  command
      .add_option("--kv-cold-codec", flags.tiers.cold_codec,
                  "How they are kept there: none (as they are), int8 (half the size; answers are no longer exactly the "
                  "same wherever blocks come from)")
      ->check(CLI::IsMember({"none", "int8"}))
      ->capture_default_str();
  command.add_flag("!--no-kv-pacing", flags.tiers.paced,
                   "Copy from cold memory as fast as it goes while the drive is being read, for measuring");
  command.add_option("--kv-disk", flags.tiers.folder,
                     "Folder on a fast drive that keeps keys and values beyond memory and across restarts");
  command.add_option("--kv-disk-size", flags.disk_size, "What it may take (default 20GiB)")->check(ByteSize());
  command.add_flag("--kv-disk-read-only", flags.tiers.read_only,
                   "Only read what another server stores there, or has stored");
  command
      .add_option("--kv-admission", flags.tiers.admission,
                  "What is written there: a5 (what was used more than once, when it leaves memory), all (all that "
                  "leaves memory), through (everything, at once)")
      ->check(CLI::IsMember({"a5", "all", "through"}))
      ->capture_default_str();
  command
      .add_option("--kv-disk-daily-writes", flags.daily_writes,
                  "With a5: bytes written a day, e.g. 200GiB, so that the drive lasts (default: no limit)")
      ->check(ByteSize());
}

absl::Status ResolveTiers(const TierFlags& flags, runtime::RuntimeOptions& options) {
  options.tiers = flags.tiers;
  const auto read = [](const std::string& text, uint64_t& out) -> absl::Status {
    if (text.empty()) return absl::OkStatus();
    KVIST_ASSIGN_OR_RETURN(out, ParseByteSize(text));
    return absl::OkStatus();
  };
  KVIST_RETURN_IF_ERROR(read(flags.cold_memory, options.tiers.cold_memory_bytes));
  KVIST_RETURN_IF_ERROR(read(flags.disk_size, options.tiers.disk_bytes));
  KVIST_RETURN_IF_ERROR(read(flags.daily_writes, options.tiers.written_bytes_per_day));
  return absl::OkStatus();
}

void LogTiers(const runtime::Runtime& runtime, const runtime::TierOptions& options) {
  if (runtime.tiers.cold == nullptr) return;
  for (const kv::TierFigures& tier : runtime.engine->Stats().tier_figures) {
    const std::string name = tier.name == kv::kColdMemoryTier ? "cold memory" : tier.name;
    const bool as_wished = tier.state == "writing" || (options.read_only && tier.state == "read-only");
    spdlog::log(as_wished ? spdlog::level::info : spdlog::level::warn, "KV on {}: {}{}, {} of {}, {}{}{}", name,
                Counted(tier.blocks, "block"), tier.name == kv::kDriveTier ? Cat(" in ", options.folder) : "",
                FormatByteSize(tier.bytes), FormatByteSize(tier.bytes_max), tier.state, tier.reason.empty() ? "" : ": ",
                tier.reason);
    if (tier.name == kv::kDriveTier && !options.read_only) WarnOfSmallDrive(tier, options.folder);
    if (!tier.lossless) {
      spdlog::warn("KV on {} {}: answers may depend on where blocks come from", name,
                   tier.codec == "none" ? std::string("has blocks that went through another codec")
                                        : Cat("is kept as ", tier.codec));
    }
  }
}

}  // namespace kvist::cli
