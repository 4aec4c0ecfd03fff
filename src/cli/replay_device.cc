#include "cli/replay_device.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "base/byte_size.h"
#include "base/counted.h"
#include "base/status.h"
#include "cli/model_flags.h"
#include "cli/model_path.h"
#include "cli/policy_flag.h"
#include "cli/ranges.h"
#include "lab/device_replay.h"
#include "lab/load_report.h"
#include "modelfile/gguf.h"
#include "serve/json_output.h"

namespace kvist::cli {
namespace {

/// Share of a trace's requests that may be refused without a word.
constexpr double kRefusedNoted = 0.1;

/// Shares of the device's busy time, joules and the like.
boost::json::object TotalsJson(const lab::DeviceReplayResult& result) {
  const cost::StepCost& cost = result.totals.cost;
  const double busy_ns = std::max(cost.ns(), 1.0);
  return {{"steps", result.totals.steps},
          {"tokens", result.totals.tokens},
          {"busy_s", cost.ns() * 1e-9},
          {"joules", cost.joules},
          {"preemptions", result.preemptions},
          {"share_of_busy",
           {{"matmul", cost.matmul_ns / busy_ns},
            {"attention", cost.attention_ns / busy_ns},
            {"experts", cost.experts_ns / busy_ns},
            {"other", cost.other_ns / busy_ns},
            {"links", cost.links_ns / busy_ns},
            {"host", cost.host_ns / busy_ns}}}};
}

boost::json::object LinkJson(const cost::LinkUse& use) {
  return {{"transfers", use.transfers},
          {"bytes", use.bytes},
          {"busy_s", static_cast<double>(use.busy_ns) * 1e-9},
          {"waited_s", static_cast<double>(use.waited_ns) * 1e-9}};
}

boost::json::object HostJson(const lab::DeviceReplayResult& result) {
  const lab::HostFigures& host = result.host;
  return {{"restores", host.restores},
          {"restored_blocks", host.restored_blocks},
          {"restore_s", static_cast<double>(host.restore_ns) * 1e-9},
          {"computed_instead", host.computed_instead},
          {"evicted_blocks", host.evicted_blocks},
          {"to_host", LinkJson(host.to_host)},
          {"to_device", LinkJson(host.to_device)}};
}

void PrintHost(const lab::DeviceReplayResult& result) {
  const lab::HostFigures& host = result.host;
  const auto link = [](std::string_view name, const cost::LinkUse& use) {
    const auto transfers = static_cast<double>(std::max<uint64_t>(use.transfers, 1));
    fmt::print("  {}: {} of {:.1f} MB, {:.1f} s in all; {:.2f} ms waited for the link each\n", name,
               Counted(use.transfers, "transfer"), use.bytes / transfers * 1e-6,
               static_cast<double>(use.busy_ns) * 1e-9, static_cast<double>(use.waited_ns) / transfers * 1e-6);
  };
  fmt::print("memory of the host: {} began with {} from there; {} sooner computed\n", Counted(host.restores, "prompt"),
             Counted(host.restored_blocks, "block"),
             host.computed_instead == 1 ? "1 was" : FormatCount(host.computed_instead) + " were");
  link("to it", host.to_host);
  link("from it", host.to_device);
}

void Print(const ReplayDeviceFlags& flags, const lab::DeviceReplayResult& result, uint32_t blocks, double wall_s,
           bool json) {
  lab::LoadReport report{.url = Cat("emulated ", flags.device.device), .model = flags.device.shape};
  report.summary = lab::SummariseLoad(result.records, 0, {}, result.duration_s);
  report.result.records = result.records;
  if (json) {
    boost::json::object out = lab::FiguresJson(report.summary.all);
    out["queued_ms"] = lab::DistributionJson(lab::DistributionOf(result.queued_s));
    out["device"] = flags.device.device;
    out["model"] = flags.device.shape;
    out["duration_s"] = result.duration_s;
    out["running_max"] = report.summary.running_max;
    out["kv_blocks"] = blocks;
    out["emulation"] = TotalsJson(result);
    if (flags.HasHost()) out["host"] = HostJson(result);
    if (flags.replicas > 1) {
      const auto [least, most] = std::ranges::minmax(result.busy_s);
      out["replicas"] = {
          {"count", flags.replicas}, {"route", flags.route}, {"busy_s_min", least}, {"busy_s_max", most}};
    }
    if (const cost::ProfileUse& use = result.profile_use; use.steps > 0) {
      out["outside_profile_share"] = static_cast<double>(use.outside) / static_cast<double>(use.steps);
      out["outside_profile"] = {{"steps", use.outside}, {"worst_factor", use.worst.factor}, {"worst", use.worst.where}};
    }
    fmt::print("{}\n", serve::JsonText(out));
    return;
  }
  fmt::print("{}", lab::LoadTable(report));
  const cost::StepCost& cost = result.totals.cost;
  const double percent = 100 / std::max(cost.ns(), 1.0);
  if (flags.replicas > 1) {
    const auto [least, most] = std::ranges::minmax(result.busy_s);
    fmt::print("\n{} replicas, {}; busy for {:.1f} to {:.1f} s each. What follows is of all of them, KV blocks of each",
               flags.replicas, flags.route, least, most);
  }
  fmt::print("\n{}, the device busy for {:.1f} s, {:.0f} kJ; {}, {}\n", Counted(result.totals.steps, "step"),
             cost.ns() * 1e-9, cost.joules * 1e-3, Counted(blocks, "KV block"),
             Counted(result.preemptions, "preemption"));
  fmt::print(
      "of busy time: matmul {:.1f} %, attention {:.1f} %, experts {:.1f} %, other {:.1f} %, links {:.1f} %, "
      "host {:.1f} %\n",
      percent * cost.matmul_ns, percent * cost.attention_ns, percent * cost.experts_ns, percent * cost.other_ns,
      percent * cost.links_ns, percent * cost.host_ns);
  if (flags.HasHost()) PrintHost(result);
  if (const cost::ProfileUse& use = result.profile_use; use.outside > 0) {
    fmt::print(
        "{}, {:.2f} %, lay outside of what the profile measured, the worst by a factor of {:.2f} ({}): beyond it "
        "times go on in proportion\n",
        Counted(use.outside, "step"), 100 * static_cast<double>(use.outside) / static_cast<double>(use.steps),
        use.worst.factor, use.worst.where);
  }
  fmt::print(stderr, "{:.1f} s of the device in {:.2f} s: {:.0f} times real time\n", result.duration_s, wall_s,
             result.duration_s / wall_s);
}

/// Figures of few of many requests are easily taken for those of all.
void NoteRefused(uint64_t answered, uint64_t refused) {
  const double share = static_cast<double>(refused) / static_cast<double>(std::max<uint64_t>(answered + refused, 1));
  if (share < kRefusedNoted) return;
  fmt::print(stderr, "note: {:.0f} % of the requests, {} of {}, were not answered; latencies are those of the others\n",
             100 * share, FormatCount(refused), FormatCount(answered + refused));
}

absl::StatusOr<lab::HostTierOptions> HostOf(const ReplayDeviceFlags& flags, const cost::StepModel& model) {
  KVIST_ASSIGN_OR_RETURN(const uint64_t bytes, ParseByteSize(flags.host_memory));
  lab::HostTierOptions host{.block_bytes = model.kv_bytes_per_token() * kv::kBlockTokens};
  const double devices = 1.0 * flags.device.tensor_parallel * flags.device.pipeline_parallel;
  host.blocks_max = static_cast<uint64_t>(static_cast<double>(bytes) / (host.block_bytes * devices));
  if (host.blocks_max == 0) {
    return absl::InvalidArgumentError(Cat("--host-memory ", flags.host_memory, " holds no block of ",
                                          FormatByteSize(static_cast<uint64_t>(host.block_bytes * devices))));
  }
  KVIST_ASSIGN_OR_RETURN(host.link, DeviceCatalog(flags.device.folder).FindLink(flags.host_link));
  return host;
}

}  // namespace

void AddReplayDeviceFlags(CLI::App& command, ReplayDeviceFlags& flags) {
  AddDeviceFlags(command, flags.device, "--model");
  command.add_option("--policy", flags.policy, "With --device: scheduling policy")
      ->check(KnownPolicy())
      ->capture_default_str();
  command.add_option("--max-batched-tokens", flags.tokens_per_step_max, "With --device: tokens of a step")
      ->transform(WholeNumber(1, 1 << 15))
      ->capture_default_str();
  command.add_option("--max-requests", flags.requests_max, "With --device: requests that run at once")
      ->transform(WholeNumber(1, 1 << 14))
      ->capture_default_str();
  command
      .add_option("--concurrency", flags.concurrency,
                  "With --device: so many requests are always under way, whatever the trace's times")
      ->transform(WholeNumber(0, 1 << 14));
  command.add_option("--requests", flags.requests, "With --device: the first so many of the trace; 0 = all")
      ->transform(WholeNumber(0, kCountMax));
  command
      .add_option("--replicas", flags.replicas,
                  "With --device: so many of the model, each on devices of its own, behind a router")
      ->transform(WholeNumber(1, 4096))
      ->capture_default_str();
  command.add_option("--route", flags.route, "With --replicas: how requests are dealt out")
      ->check(CLI::IsMember({"round-robin", "least-loaded"}))
      ->capture_default_str();
  command
      .add_option("--copies", flags.copies,
                  "With --device: each request so many times, shifted by parts of the trace's span")
      ->transform(WholeNumber(1, 4096))
      ->capture_default_str();
  command.add_flag("--no-cache", flags.no_reuse, "With --device: keep nothing of finished requests");
  command.add_flag("--plan-behind", flags.plan_behind,
                   "With --device: a step is planned when the one before has ended, not while it runs");
  command
      .add_option("--host-memory", flags.host_memory,
                  "With --device: so much memory of each replica's host takes what leaves the device's, e.g. 256GiB")
      ->check(CLI::Validator(
          [](const std::string& text) { return std::string(ParseByteSize(text).status().message()); }, "SIZE"));
  command
      .add_option("--host-link", flags.host_link,
                  "With --host-memory: way to it of each device, a name of devices/links/")
      ->capture_default_str();
  command.add_flag("--real-time", flags.real_time, "With --device: in real time; the device sleeps");
}

absl::Status ReplayDevice(const ReplayDeviceFlags& flags, const std::vector<std::string>& traces, uint32_t blocks,
                          bool json) {
  KVIST_ASSIGN_OR_RETURN(workload::Trace trace, workload::LoadTraces(traces));
  if (trace.requests.empty()) return absl::InvalidArgumentError("--trace: there is no request in it");
  if (flags.requests > 0 && flags.requests < trace.requests.size()) trace.requests.resize(flags.requests);
  if (flags.copies > 1) trace = lab::CopiesOf(trace, flags.copies);
  KVIST_ASSIGN_OR_RETURN(const std::string model_path, ResolveModel(""));
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(model_path));
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<const Tokenizer> tokenizer, Tokenizer::FromGguf(*file));
  KVIST_ASSIGN_OR_RETURN(cost::StepModel model, StepModelOf(flags.device));
  if (blocks == 0) {
    KVIST_ASSIGN_OR_RETURN(blocks, KvBlocksOf(flags.device, model));
  }
  std::optional<lab::HostTierOptions> host;
  if (flags.HasHost()) {
    KVIST_ASSIGN_OR_RETURN(host, HostOf(flags, model));
  }
  const auto start = std::chrono::steady_clock::now();
  KVIST_ASSIGN_OR_RETURN(const lab::DeviceReplayResult result,
                         lab::ReplayOnDevice(*tokenizer, trace,
                                             {.model = std::move(model),
                                              .policy = flags.policy,
                                              .tokens_per_step_max = flags.tokens_per_step_max,
                                              .requests_max = flags.requests_max,
                                              .blocks = blocks,
                                              .reuse = !flags.no_reuse,
                                              .plan_ahead = !flags.plan_behind,
                                              .concurrency = flags.concurrency,
                                              .real_time = flags.real_time,
                                              .replicas = flags.replicas,
                                              .routing = flags.route == "round-robin" ? lab::Routing::kRoundRobin
                                                                                      : lab::Routing::kLeastLoaded,
                                              .host = std::move(host)}));
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  Print(flags, result, blocks, wall.count(), json);
  KVIST_RETURN_IF_ERROR(FlushOutput());
  const auto answered = static_cast<uint64_t>(std::ranges::count_if(result.records, &lab::LoadRecord::answered));
  NoteRefused(answered, result.records.size() - answered);
  if (answered > 0) return absl::OkStatus();
  return absl::UnavailableError(Cat("no request was answered", result.records.empty() || result.records[0].why.empty()
                                                                   ? ""
                                                                   : Cat(": ", result.records[0].why)));
}

}  // namespace kvist::cli
