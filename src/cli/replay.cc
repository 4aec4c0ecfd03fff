/// @file
/// `kvist replay --trace FILE ...`: recorded requests through the KV memory, to see what a cache of some size saves.

#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "base/status.h"
#include "cli/commands.h"
#include "kv/kv_memory.h"
#include "lab/cache_replay.h"

namespace kvist::cli {
namespace {

struct ReplayFlags {
  std::vector<std::string> traces;
  uint32_t blocks = 0;
  double share = 0.25;
  uint32_t buckets = kv::FramePool::kDefaultBuckets;
  bool json = false;
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

absl::Status Replay(const ReplayFlags& flags) {
  KVIST_ASSIGN_OR_RETURN(const workload::Trace trace, workload::LoadTraces(flags.traces));
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
    fmt::print("{}\n", boost::json::serialize(out));
    return absl::OkStatus();
  }
  const auto line = [&](const char* what, uint64_t computed) {
    const double of_all = 100 * static_cast<double>(computed) / static_cast<double>(result.prompt_tokens);
    fmt::print("{:<38}{:>14}{:>9.1f} %\n", what, computed, of_all);
  };
  fmt::print("{} requests, {} prompt tokens; {} blocks of {} tokens for a working set of {}\n", result.requests,
             result.prompt_tokens, blocks, kv::kBlockTokens, result.distinct_blocks);
  if (result.refused > 0)
    fmt::print("{} more requests do not fit; they are in none of these figures\n", result.refused);
  fmt::print("\n");
  fmt::print("{:<38}{:>14}{:>11}\n", "prompt tokens computed", "tokens", "of all");
  line("with this memory", result.computed_tokens);
  line("if it knew the future", result.clairvoyant_computed_tokens);
  line("with room for everything", result.infinite_computed_tokens);
  fmt::print("\n{} blocks evicted; {:.2f} % of the slots of a running request's frames are empty\n",
             result.evicted_blocks, 100 * result.empty_share);
  return absl::OkStatus();
}

}  // namespace

void AddReplay(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("replay", "Recorded requests through the KV memory: what a cache of some size saves");
  auto flags = std::make_shared<ReplayFlags>();
  command
      ->add_option(
          "--trace", flags->traces,
          "Trace files: Mooncake's JSON lines, or agent sessions (one a file), merged by the time of their requests")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("--blocks", flags->blocks, "Blocks of 16 tokens that memory holds; 0 = by --share")
      ->check(CLI::Range(0u, 1u << 24));
  command->add_option("--share", flags->share, "Blocks as a share of all distinct ones")
      ->check(CLI::Range(0.001, 2.0))
      ->capture_default_str();
  command->add_option("--buckets", flags->buckets, "Of the pool, a power of two; 1 = exact LRU")
      ->check(CLI::IsMember({1, 2, 4, 8, 16, 32, 64, 128, 256, 512}))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "One JSON object on standard output");
  command->callback([flags, &exit_code] {
    if (absl::Status status = Replay(*flags); !status.ok()) {
      fmt::print(stderr, "kvist replay: {}\n", std::string(status.message()));
      exit_code = 1;
    }
  });
}

}  // namespace kvist::cli
