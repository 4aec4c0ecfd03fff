/// @file
/// `kvist sim --seed N`: workers, router, clients, network, drives and clocks in one simulated world, with faults, and
/// checkers that look whether every promise holds (docs/simulation.md).

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "base/status.h"
#include "cli/commands.h"
#include "cli/ranges.h"
#include "lab/sim_run.h"
#include "platform/text_file.h"
#include "serve/json_output.h"

namespace kvist::cli {
namespace {

namespace json = boost::json;

struct SimFlags {
  uint64_t seed = 1, runs = 1;
  double seconds = 10, for_s = 0;
  std::string scenario, defect, out;
  bool json = false, trace = false, no_shrink = false;
};

void Print(const lab::SimScenario& scenario, const lab::WorldResult& result, const SimFlags& flags) {
  const lab::ClientTotals& clients = result.clients;
  const lab::WorkerTotals& workers = result.workers;
  if (flags.json) {
    json::object out = {{"seed", scenario.seed},
                        {"ok", result.ok()},
                        {"digest", fmt::format("{:016x}", result.digest)},
                        {"seconds", result.seconds},
                        {"faults", scenario.faults.size()},
                        {"requests", clients.requests},
                        {"answered", clients.answered},
                        {"cancelled", clients.cancelled},
                        {"refused", clients.refused},
                        {"failed", clients.failed},
                        {"steps", workers.steps},
                        {"computed_tokens", workers.computed_tokens},
                        {"cached_tokens", workers.cached_tokens},
                        {"generated_tokens", workers.generated_tokens},
                        {"preemptions", workers.preemptions},
                        {"stored_blocks", workers.stored_blocks},
                        {"restored_blocks", workers.restored_blocks}};
    if (!result.ok()) {
      out["checker"] = result.violation.checker;
      out["message"] = result.violation.message;
      out["at_s"] = result.violation.at_s;
      out["scenario"] = lab::EncodeScenario(scenario);
    }
    fmt::print("{}\n", serve::JsonText(out));
    return;
  }
  fmt::print(
      "seed {:<6} {:016x} {:7.2f} s, {} faults: {} requests, {} answered, {} cancelled, {} refused, {} failed; "
      "{} steps, {} tokens cached, {} blocks stored, {} restored{}\n",
      scenario.seed, result.digest, result.seconds, scenario.faults.size(), clients.requests, clients.answered,
      clients.cancelled, clients.refused, clients.failed, workers.steps, workers.cached_tokens, workers.stored_blocks,
      workers.restored_blocks, result.ok() ? "" : "; BROKEN");
  if (!result.ok()) {
    fmt::print("\nbroken promise: {}, at {:.6f} s\n{}\n\nwhat happened last:\n", result.violation.checker,
               result.violation.at_s, result.violation.message);
  }
  if (result.ok() && !flags.trace) return;
  for (const std::string& line : result.last_lines) fmt::print("  {}\n", line);
}

/// A scenario that broke a promise, made short.
absl::Status Explain(const lab::SimScenario& scenario, const lab::WorldResult& result,
                     const lab::SimRunOptions& options, const SimFlags& flags) {
  lab::Shrunk shrunk{.scenario = scenario, .result = result};
  if (!flags.no_shrink) {
    KVIST_ASSIGN_OR_RETURN(shrunk, lab::Shrink(scenario, result, options));
    fmt::print(stderr, "made shorter in {} runs\n", shrunk.runs);
  }
  Print(shrunk.scenario, shrunk.result, flags);
  const std::string defect = flags.defect.empty() ? "" : Cat(" --defect ", flags.defect);
  const std::string text = Cat("# kvist sim --scenario FILE", defect, "\n", lab::EncodeScenario(shrunk.scenario));
  if (flags.out.empty()) {
    fmt::print(stderr, "\n{}", text);
    return absl::OkStatus();
  }
  KVIST_RETURN_IF_ERROR(WriteTextFile(flags.out, text));
  fmt::print(stderr, "written to {}\n", flags.out);
  return absl::OkStatus();
}

absl::StatusOr<bool> Simulate(const SimFlags& flags) {
  lab::SimRunOptions options;
  if (!flags.defect.empty()) options.defect = lab::FindDefect(flags.defect)->defect;
  const auto start = std::chrono::steady_clock::now();
  const auto goes_on = [&](uint64_t run) {
    if (flags.for_s <= 0) return run < flags.runs;
    return std::chrono::steady_clock::now() - start < std::chrono::duration<double>(flags.for_s);
  };
  for (uint64_t run = 0; goes_on(run); ++run) {
    lab::SimScenario scenario = lab::DrawScenario(flags.seed + run, flags.seconds);
    if (!flags.scenario.empty()) {
      KVIST_ASSIGN_OR_RETURN(scenario, lab::ReadScenario(flags.scenario));
      scenario.seed += run;
    }
    KVIST_ASSIGN_OR_RETURN(const lab::WorldResult result, lab::RunApart(scenario, options));
    if (!result.ok()) {
      KVIST_RETURN_IF_ERROR(Explain(scenario, result, options, flags));
      return false;
    }
    Print(scenario, result, flags);
  }
  return true;
}

}  // namespace

void AddSim(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<SimFlags>();
  CLI::App* command =
      app.add_subcommand("sim", "A simulated world with faults under a seed: whether every promise holds");
  command->add_option("--seed", flags->seed, "Of the first world")->capture_default_str();
  command->add_option("--runs", flags->runs, "Worlds, each with the next seed")
      ->transform(WholeNumber(1, UINT64_MAX))
      ->capture_default_str();
  command->add_option("--for", flags->for_s, "Seconds of real time, in place of --runs")->check(CLI::Range(0.0, 1e6));
  command->add_option("--seconds", flags->seconds, "Virtual time of each world")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  command->add_option("--scenario", flags->scenario, "A TOML file in place of what the seed stands for")
      ->check(CLI::ExistingFile);
  std::vector<std::string> known;
  for (const lab::DefectEntry& entry : lab::Defects()) known.emplace_back(entry.name);
  command->add_option("--defect", flags->defect, "A defect put in on purpose, to see it found")
      ->check(CLI::IsMember(known));
  command->add_option("--out", flags->out, "Where the short scenario of a failure goes");
  command->add_flag("--no-shrink", flags->no_shrink, "Leave the scenario of a failure as it is");
  command->add_flag("--trace", flags->trace, "What happened last, also where all is well");
  command->add_flag("--json", flags->json, "One JSON object for each world");
  command->callback([flags, &exit_code] {
    const absl::StatusOr<bool> held = Simulate(*flags);
    if (!held.ok()) fmt::print(stderr, "kvist sim: {}\n", std::string(held.status().message()));
    exit_code = held.ok() && *held ? 0 : 1;
  });
}

}  // namespace kvist::cli
