/// @file
/// `kvist replay --trace FILE ...`: recorded requests through the KV memory, to see what a cache of some size saves;
/// with `--tiers`, through memory and a drive, to see what is written and what that is worth; with `--device`, through
/// the engine on an emulated device, to see how long they take.

#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "base/byte_size.h"
#include "base/counted.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/ranges.h"
#include "cli/replay_device.h"
#include "kv/kv_memory.h"
#include "lab/cache_replay.h"
#include "lab/tier_replay.h"
#include "serve/json_output.h"

namespace kvist::cli {
namespace {

struct ReplayFlags {
  std::vector<std::string> traces;
  uint32_t blocks = 0;
  double share = 0.25;
  uint32_t buckets = kv::FramePool::kDefaultBuckets;
  bool tiers = false;
  std::string daily_writes;
  uint32_t block_kib = 512;  ///< Of 16 tokens.
  bool json = false;
  ReplayDeviceFlags device;
};

/// Blocks of everything that is ever cached.
absl::StatusOr<uint64_t> WorkingSet(const workload::Trace& trace) {
  uint64_t tokens = 0;
  for (const workload::TraceRequest& request : trace.requests) tokens += request.input_tokens + kv::kBlockTokens;
  const uint64_t enough = std::min<uint64_t>(tokens / kv::kBlockTokens, 1u << 24);
  KVIST_ASSIGN_OR_RETURN(const lab::CacheReplayResult all,
                         lab::ReplayCache(trace, {.blocks = static_cast<uint32_t>(enough), .buckets = 1}));
  return all.distinct_blocks;
}

/// A trace that says what prompts have in common.
absl::StatusOr<workload::Trace> TraceWithTexts(const ReplayFlags& flags) {
  KVIST_ASSIGN_OR_RETURN(workload::Trace trace, workload::LoadTraces(flags.traces));
  if (trace.requests.empty()) return absl::InvalidArgumentError("--trace: there is no request in it");
  if (trace.block_tokens == 0) {
    return absl::InvalidArgumentError(
        "--trace: times and lengths alone, as Azure's have them, say nothing of what a cache would save; give --device "
        "to run them on an emulated device");
  }
  return trace;
}

absl::Status Replay(const ReplayFlags& flags) {
  KVIST_ASSIGN_OR_RETURN(const workload::Trace trace, TraceWithTexts(flags));
  uint64_t blocks = flags.blocks;
  if (blocks == 0) {
    KVIST_ASSIGN_OR_RETURN(const uint64_t working_set, WorkingSet(trace));
    blocks = static_cast<uint64_t>(static_cast<double>(working_set) * flags.share);
  }
  KVIST_ASSIGN_OR_RETURN(const lab::CacheReplayResult result,
                         lab::ReplayCache(trace, {.blocks = static_cast<uint32_t>(blocks), .buckets = flags.buckets}));
  if (result.requests == 0) {
    return absl::InvalidArgumentError(Cat("none of the ", result.refused, " requests fits ", blocks, " blocks"));
  }
  const uint64_t cached = result.prompt_tokens - result.computed_tokens;
  if (flags.json) {
    const boost::json::object out = {{"requests", result.requests},
                                     {"refused", result.refused},
                                     {"prompt_tokens", result.prompt_tokens},
                                     {"computed_tokens", result.computed_tokens},
                                     {"cached_tokens", cached},
                                     {"infinite_computed_tokens", result.infinite_computed_tokens},
                                     {"clairvoyant_computed_tokens", result.clairvoyant_computed_tokens},
                                     {"blocks", blocks},
                                     {"working_set_blocks", result.distinct_blocks},
                                     {"evicted_blocks", result.evicted_blocks},
                                     {"empty_share", result.empty_share}};
    fmt::print("{}\n", serve::JsonText(out));
    return absl::OkStatus();
  }
  const auto line = [&](const char* what, uint64_t computed) {
    const double of_all = 100 * static_cast<double>(computed) / static_cast<double>(result.prompt_tokens);
    fmt::print("{:<38}{:>14}{:>9.1f} %\n", what, computed, of_all);
  };
  fmt::print("{}, {}; {} of {} tokens for a working set of {}\n", Counted(result.requests, "request"),
             Counted(result.prompt_tokens, "prompt token"), Counted(blocks, "block"), kv::kBlockTokens,
             FormatCount(result.distinct_blocks));
  if (result.refused == 1) fmt::print("1 more request does not fit; it is in none of these figures\n");
  if (result.refused > 1) {
    fmt::print("{} more requests do not fit; they are in none of these figures\n", FormatCount(result.refused));
  }
  fmt::print("\n");
  fmt::print("{:<38}{:>14}{:>11}\n", "prompt tokens computed", "tokens", "of all");
  line("with this memory", result.computed_tokens);
  line("if it knew the future", result.clairvoyant_computed_tokens);
  line("with room for everything", result.infinite_computed_tokens);
  fmt::print("\n{} evicted; {:.2f} % of the slots of a running request's frames are empty\n",
             Counted(result.evicted_blocks, "block"), 100 * result.empty_share);
  return absl::OkStatus();
}

/// One policy of admission on the trace.
struct TierRow {
  std::string policy;
  lab::TierReplayResult result;
};

void PrintTiers(const std::vector<TierRow>& rows, uint64_t block_bytes, bool as_json) {
  const lab::TierReplayResult& all = rows.front().result;
  for (const TierRow& row : rows) {
    const lab::TierReplayResult& r = row.result;
    const double asked = static_cast<double>(r.asked);
    const double reuse = static_cast<double>(r.memory_hits + r.drive_hits);
    const double of_all = reuse / static_cast<double>(std::max<uint64_t>(all.memory_hits + all.drive_hits, 1));
    const double saved = 1 - static_cast<double>(r.written) / static_cast<double>(std::max<uint64_t>(all.written, 1));
    const double daily = static_cast<double>(r.written * block_bytes) / std::max(r.seconds, 1.0) * 86400;
    if (as_json) {
      const boost::json::object out = {{"policy", row.policy},
                                       {"requests", r.requests},
                                       {"blocks", r.asked},
                                       {"working_set_blocks", r.distinct},
                                       {"memory_hits", r.memory_hits},
                                       {"drive_hits", r.drive_hits},
                                       {"written_blocks", r.written},
                                       {"written_bytes", r.written * block_bytes},
                                       {"written_bytes_per_day", daily},
                                       {"reuse_of_all", of_all},
                                       {"saved_of_all", saved}};
      fmt::print("{}\n", serve::JsonText(out));
      continue;
    }
    if (&row == &rows.front()) {
      fmt::print("{}, {} asked for, {} of them different\n\n", Counted(r.requests, "request"),
                 Counted(r.asked, "block"), FormatCount(r.distinct));
      fmt::print("{:<12}{:>10}{:>10}{:>10}{:>10}{:>10}{:>14}\n", "admission", "in memory", "on drive", "reuse",
                 "written", "saved", "a day");
    }
    fmt::print("{:<12}{:>8.1f} %{:>8.1f} %{:>8.1f} %{:>10}{:>8.1f} %{:>14}\n", row.policy,
               100 * static_cast<double>(r.memory_hits) / asked, 100 * static_cast<double>(r.drive_hits) / asked,
               100 * of_all, r.written, 100 * saved, FormatByteSize(static_cast<uint64_t>(daily)));
  }
}

absl::Status ReplayTiers(const ReplayFlags& flags) {
  KVIST_ASSIGN_OR_RETURN(const workload::Trace trace, TraceWithTexts(flags));
  kv::ReuseAdmissionOptions a5;
  if (!flags.daily_writes.empty()) {
    KVIST_ASSIGN_OR_RETURN(a5.bytes_per_day, ParseByteSize(flags.daily_writes));
  }
  lab::TierReplayOptions options{.block_bytes =
                                     uint64_t{flags.block_kib} * 1024 * trace.block_tokens / kv::kBlockTokens};
  kv::AdmitAll all;
  options.memory_blocks = UINT64_MAX;
  KVIST_ASSIGN_OR_RETURN(const lab::TierReplayResult everything, lab::ReplayTiers(trace, options, all));
  options.memory_blocks = flags.blocks > 0
                              ? uint64_t{flags.blocks} * kv::kBlockTokens / trace.block_tokens
                              : static_cast<uint64_t>(static_cast<double>(everything.distinct) * flags.share);
  std::vector<TierRow> rows;
  for (const char* name : {"all", "through", "a5"}) {
    KVIST_ASSIGN_OR_RETURN(const lab::TierReplayResult result,
                           lab::ReplayTiers(trace, options, *kv::MakeAdmissionPolicy(name, a5)));
    rows.push_back({name, result});
  }
  KVIST_ASSIGN_OR_RETURN(const lab::TierReplayResult best, lab::ReplayClairvoyant(trace, options));
  rows.push_back({"clairvoyant", best});
  PrintTiers(rows, options.block_bytes, flags.json);
  return absl::OkStatus();
}

}  // namespace

void AddReplay(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("replay",
                         "Recorded requests through the KV memory: what a cache of some size saves; or through the "
                         "engine on an emulated device");
  auto flags = std::make_shared<ReplayFlags>();
  command
      ->add_option("--trace", flags->traces,
                   "Trace files: Mooncake's JSON lines, Azure's CSV (with --device), or agent sessions (one a file), "
                   "merged by the "
                   "time of their requests")
      ->required()
      ->check(CLI::ExistingFile);
  command
      ->add_option("--blocks", flags->blocks,
                   "Blocks of 16 tokens that memory holds; 0 = by --share, or what --device has room for")
      ->check(CLI::Range(0u, 1u << 24));
  command->add_option("--share", flags->share, "Blocks as a share of all distinct ones")
      ->check(CLI::Range(0.001, 2.0))
      ->capture_default_str();
  command->add_option("--buckets", flags->buckets, "Of the pool, a power of two; 1 = exact LRU")
      ->check(CLI::IsMember({1, 2, 4, 8, 16, 32, 64, 128, 256, 512}))
      ->capture_default_str();
  command->add_flag("--tiers", flags->tiers,
                    "Memory and a drive behind it: what each policy of admission writes, and how much is found again");
  command
      ->add_option("--daily-writes", flags->daily_writes,
                   "With --tiers: what a5 may write to the drive a day, such as 500GiB; none = no limit")
      ->check(ByteSize());
  command->add_option("--block-kib", flags->block_kib, "With --tiers: KiB of a block of 16 tokens")
      ->check(CLI::Range(1u, 65536u))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "JSON on standard output: one object, with --tiers one for each policy");
  AddReplayDeviceFlags(*command, flags->device);
  command->callback([flags, &exit_code] {
    const absl::Status status = !flags->device.device.device.empty()
                                    ? ReplayDevice(flags->device, flags->traces, flags->blocks, flags->json)
                                : flags->tiers ? ReplayTiers(*flags)
                                               : Replay(*flags);
    if (!status.ok()) {
      exit_code = Report("replay", status);
    }
  });
}

}  // namespace kvist::cli
