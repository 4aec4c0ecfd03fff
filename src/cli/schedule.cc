/// @file
/// `kvist schedule --policy NAME ... --source KEY=VALUE,...`: policies under a load, in virtual time on a machine that
/// is given by its prices.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "base/percentile.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/model_path.h"
#include "cli/policy_flag.h"
#include "cli/ranges.h"
#include "lab/schedule_replay.h"
#include "modelfile/gguf.h"
#include "sched/length_predictor.h"
#include "serve/json_output.h"
#include "train/length_training.h"

namespace kvist::cli {
namespace {

constexpr size_t kBytesPerToken = 4;  // Of a logged prompt, about.

struct ScheduleFlags {
  std::vector<std::string> policies, sources;
  std::vector<double> prices;
  std::string log, length_model;
  lab::ScheduleOptions options;
  double first_token_ms = 0, next_token_ms = 0, slo_first_ms = 0, slo_next_ms = 0;
  bool json = false;
};

template <class Number>
bool ParseNumber(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

/// "64", "64-512" or "log".
bool ParseLengths(std::string_view text, lab::ScheduleSource& source, uint32_t& min, uint32_t& max) {
  source.from_log |= text == "log";
  if (text == "log") return true;
  const size_t dash = std::min(text.find('-'), text.size());
  if (!ParseNumber(text.substr(0, dash), min)) return false;
  max = min;
  return (dash == text.size() || ParseNumber(text.substr(dash + 1), max)) && min > 0 && max >= min && max <= 1 << 20;
}

bool ParseField(std::string_view key, std::string_view value, lab::ScheduleSource& source) {
  if (key == "name") source.name = value;
  if (key == "name" || (key == "regular" && value == "1")) {
    source.regular |= key == "regular";
    return true;
  }
  if (key == "count") return ParseNumber(value, source.count) && source.count <= 1'000'000;
  if (key == "rate") return ParseNumber(value, source.rate) && source.rate >= 0;
  if (key == "start") return ParseNumber(value, source.start_s) && source.start_s >= 0 && source.start_s < 1e6;
  if (key == "prompt") return ParseLengths(value, source, source.prompt_min, source.prompt_max);
  if (key == "output") return ParseLengths(value, source, source.output_min, source.output_max);
  if (key == "prefix") return ParseNumber(value, source.prefix_tokens);
  if (key == "tenant") return ParseNumber(value, source.tenant);
  return key == "priority" && ParseNumber(value, source.priority);
}

absl::StatusOr<lab::ScheduleSource> ParseSource(std::string_view text) {
  lab::ScheduleSource source;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view field = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t equals = field.find('=');
    if (equals == std::string_view::npos || !ParseField(field.substr(0, equals), field.substr(equals + 1), source)) {
      return absl::InvalidArgumentError(Cat("--source: \"", field, "\" is not one of name=, count=, rate=, regular=1, ",
                                            "start=, prompt=N|A-B|log, output=N|A-B|log, prefix=, tenant=, priority="));
    }
  }
  return source;
}

absl::StatusOr<std::vector<lab::LoggedLengths>> ReadLog(const ScheduleFlags& flags) {
  std::vector<lab::LoggedLengths> log;
  if (flags.log.empty()) return log;
  KVIST_ASSIGN_OR_RETURN(const std::string text, ReadText(flags.log));
  KVIST_ASSIGN_OR_RETURN(const std::vector<train::LengthExample> examples, train::ReadLengthLog(text));
  std::optional<sched::LengthPredictor> predictor;
  if (!flags.length_model.empty()) {
    KVIST_ASSIGN_OR_RETURN(const std::string model, ReadText(flags.length_model));
    KVIST_ASSIGN_OR_RETURN(predictor, sched::LengthPredictor::Parse(model));
  }
  for (const train::LengthExample& example : examples) {
    log.push_back({.prompt_tokens = static_cast<uint32_t>(example.prompt.size() / kBytesPerToken + 1),
                   .output_tokens = example.output_tokens,
                   .output_tokens_predicted = predictor ? predictor->Predict(example.prompt) : 0});
  }
  return log;
}

/// Milliseconds.
struct Spread {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
  boost::json::object Json() const { return {{"mean", mean}, {"p50", p50}, {"p90", p90}, {"p99", p99}, {"max", max}}; }
};

Spread SpreadOf(std::vector<double> ns) {
  if (ns.empty()) return {};
  const auto at = [&](double share) { return Percentile(ns, share) * 1e-6; };
  return {.mean = std::accumulate(ns.begin(), ns.end(), 0.0) / static_cast<double>(ns.size()) * 1e-6,
          .p50 = at(0.5),
          .p90 = at(0.9),
          .p99 = at(0.99),
          .max = *std::ranges::max_element(ns) * 1e-6};
}

/// Of the requests of one source.
struct Figures {
  size_t requests = 0, finished = 0, in_time = 0;
  double prompt_tokens_per_s = 0;
  Spread first, gaps, whole;
};

Figures FiguresOf(const lab::ScheduleResult& result, uint32_t source, const ScheduleFlags& flags) {
  Figures figures;
  std::vector<double> first, whole;
  double prompt_tokens = 0;
  int64_t begin = INT64_MAX, end = 0;
  for (const lab::RequestTimes& times : result.requests) {
    if (times.source != source) continue;
    ++figures.requests;
    if (times.finished_ns < 0) continue;
    ++figures.finished;
    const auto to_first = static_cast<double>(times.first_token_ns - times.arrived_ns);
    first.push_back(to_first);
    whole.push_back(static_cast<double>(times.finished_ns - times.arrived_ns));
    const double each =
        static_cast<double>(times.finished_ns - times.first_token_ns) / std::max(times.output_tokens, 2u);
    if (to_first <= flags.slo_first_ms * 1e6 && each <= flags.slo_next_ms * 1e6) ++figures.in_time;
    prompt_tokens += times.prompt_tokens;
    begin = std::min(begin, times.arrived_ns);
    end = std::max(end, times.first_token_ns);
  }
  if (end > begin) figures.prompt_tokens_per_s = prompt_tokens / (static_cast<double>(end - begin) * 1e-9);
  figures.first = SpreadOf(std::move(first));
  figures.gaps = SpreadOf(result.token_gaps[source]);
  figures.whole = SpreadOf(std::move(whole));
  return figures;
}

void PrintJson(std::string_view policy, const lab::ScheduleSource& source, const Figures& figures,
               const lab::ScheduleResult& result) {
  const boost::json::object out = {{"policy", policy},
                                   {"source", source.name},
                                   {"requests", figures.requests},
                                   {"finished", figures.finished},
                                   {"in_time", figures.in_time},
                                   {"ttft_ms", figures.first.Json()},
                                   {"itl_ms", figures.gaps.Json()},
                                   {"e2e_ms", figures.whole.Json()},
                                   {"prompt_tokens_per_s", figures.prompt_tokens_per_s},
                                   {"duration_s", static_cast<double>(result.duration_ns) * 1e-9},
                                   {"steps", result.stats.steps},
                                   {"preemptions", result.stats.preemptions},
                                   {"cached_tokens", result.stats.cached_tokens},
                                   {"step_time_error_ratio", result.stats.step_cost.error_ratio}};
  fmt::print("{}\n", serve::JsonText(out));
}

absl::Status Schedule(ScheduleFlags& flags) {
  KVIST_ASSIGN_OR_RETURN(const std::string model, ResolveModel(""));
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(model));
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<const Tokenizer> tokenizer, Tokenizer::FromGguf(*file));
  std::vector<lab::ScheduleSource> sources;
  for (const std::string& text : flags.sources) {
    KVIST_ASSIGN_OR_RETURN(sources.emplace_back(), ParseSource(text));
  }
  KVIST_ASSIGN_OR_RETURN(const std::vector<lab::LoggedLengths> log, ReadLog(flags));
  std::ranges::copy(flags.prices, flags.options.world.machine.cost.ns.begin());
  flags.options.world.engine.first_token_ns = static_cast<int64_t>(flags.first_token_ms * 1e6);
  flags.options.world.engine.next_token_ns = static_cast<int64_t>(flags.next_token_ms * 1e6);
  if (!flags.json) {
    fmt::print("{:<14}{:<12}{:>9}{:>9}{:>25}{:>25}{:>34}{:>10}\n", "policy", "source", "requests", "in time",
               "first token p50 p99 max", "next token p50 p99 max", "whole mean p50 p99 max, ms", "prompt/s");
  }
  for (const std::string& policy : flags.policies) {
    flags.options.world.policy = policy;
    KVIST_ASSIGN_OR_RETURN(const lab::ScheduleResult result,
                           lab::ReplaySchedule(*tokenizer, sources, log, flags.options));
    for (uint32_t s = 0; s < sources.size(); ++s) {
      const Figures f = FiguresOf(result, s, flags);
      if (flags.json) {
        PrintJson(policy, sources[s], f, result);
        continue;
      }
      fmt::print(
          "{:<14}{:<12}{:>9}{:>9}{:>9.0f}{:>8.0f}{:>8.0f}{:>9.1f}{:>8.1f}{:>8.1f}{:>10.0f}{:>8.0f}{:>8.0f}{:>8.0f}{:>"
          "10.0f}\n",
          policy, sources[s].name, f.finished, f.in_time, f.first.p50, f.first.p99, f.first.max, f.gaps.p50, f.gaps.p99,
          f.gaps.max, f.whole.mean, f.whole.p50, f.whole.p99, f.whole.max, f.prompt_tokens_per_s);
    }
  }
  return FlushOutput();
}

void AddLoadFlags(CLI::App& command, ScheduleFlags& flags) {
  command.add_option("--policy", flags.policies, "Policies to compare")->required()->check(KnownPolicy());
  command
      .add_option("--source", flags.sources,
                  "Requests: name=, count=, rate= (a second; absent: all at the start), regular=1, start=, prompt= and "
                  "output= (N, A-B or log), prefix= (tokens all begin with), tenant=, priority=; may be repeated")
      ->required()
      ->allow_extra_args(false);
  command.add_option("--log", flags.log, "Recorded requests for prompt=log, as for train-length")
      ->check(CLI::ExistingFile);
  command.add_option("--length-model", flags.length_model, "By train-length: predicts the outputs of the log")
      ->check(CLI::ExistingFile);
  command.add_flag("--know-lengths", flags.options.know_lengths, "Predictions are the true output lengths");
  command.add_option("--seed", flags.options.seed, "Of everything that is drawn")->capture_default_str();
  command.add_option("--slo-ttft-ms", flags.slo_first_ms, "Counted as in time: first token within this,");
  command.add_option("--slo-tpot-ms", flags.slo_next_ms, "and later ones within this each, mean");
}

void AddMachineFlags(CLI::App& command, ScheduleFlags& flags) {
  lab::VirtualEngineOptions& options = flags.options.world;
  command
      .add_option("--step-cost", flags.prices,
                  "Nanoseconds of a step, its first 32 rows, rows to 256, later rows, a sampled token, a key read by a "
                  "decode, and a query-key pair of a prompt; as kvist_step_price_ns at /metrics")
      ->expected(sched::StepCost::kKinds)
      ->delimiter(',');
  command.add_option("--jitter", options.machine.jitter, "A step takes up to this share longer")->check(Number(0, 10));
  command.add_option("--parallel", options.requests_max, "Requests that run at once")
      ->transform(WholeNumber(1, 4096))
      ->capture_default_str();
  command.add_option("--blocks", options.blocks, "KV blocks of 16 tokens")
      ->transform(WholeNumber(2, 1 << 22))
      ->capture_default_str();
  command.add_option("--chunk", options.policy_options.chunk_tokens_max, "As for serve")
      ->transform(WholeNumber(1, 1 << 16))
      ->capture_default_str();
  command.add_option("--prefills-max", options.policy_options.prefills_max, "As for serve")
      ->transform(WholeNumber(1, 4096))
      ->capture_default_str();
  command.add_option("--ttft-target-ms", flags.first_token_ms, "As for serve")->check(Number(0, 3'600'000));
  command.add_option("--tpot-target-ms", flags.next_token_ms, "As for serve")->check(Number(0, 3'600'000));
  command.add_flag("--json", flags.json, "One JSON object for each policy and source");
}

}  // namespace

void AddSchedule(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ScheduleFlags>();
  CLI::App* command = app.add_subcommand(
      "schedule", "Scheduling policies under a load, in virtual time on a machine given by its prices");
  AddLoadFlags(*command, *flags);
  AddMachineFlags(*command, *flags);
  command->callback([flags, &exit_code] {
    const absl::Status status = Schedule(*flags);
    exit_code = status.ok() ? 0 : Report("schedule", status);
  });
}

}  // namespace kvist::cli
