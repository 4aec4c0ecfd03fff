/// @file
/// `kvist bench [MODEL]`: tokens per second, beside what the machine's memory and arithmetic allow.

#include <algorithm>
#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "base/byte_size.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/progress.h"
#include "cli/ranges.h"
#include "lab/machine.h"
#include "lab/roofline.h"
#include "lab/speed.h"
#include "lab/work.h"
#include "modelfile/inspect.h"
#include "platform/interrupt.h"
#include "platform/process.h"
#include "platform/text_file.h"
#include "serve/json_output.h"

namespace kvist::cli {
namespace {

/// Rounds of bandwidth before and after the model's turn: the median is of both, as the machine may be shared.
constexpr uint32_t kBandwidthRounds = 5;
constexpr uint32_t kBatchMax = 64;
constexpr uint64_t kTokensMax = uint64_t{1} << 24;
/// Prompt whose first token ends the start.
constexpr uint32_t kFirstPromptTokens = 16;

struct BenchFlags {
  ModelFlags model;
  lab::SpeedOptions speed;
  std::string plot;
  bool json = false;
};

/// What the machine can do with the model's threads and instruction set.
struct Machine {
  double bytes_per_s = 0;
  uint64_t buffer_bytes = 0;
  kernels::PeakKind kind = kernels::PeakKind::kF32;
  double multiply_adds_per_s = 0;  ///< 0 = unknown.
};

/// A measured speed beside its limit.
struct Judged {
  lab::Speed speed;
  lab::Work work;
  bool memory_binds = false;
  double share = 0;  ///< Of the limit that binds: 1 = as fast as memory or arithmetic allow.
};

/// From the start of the process on.
struct FirstToken {
  uint32_t prompt_tokens = 0;
  double at_s = 0;       ///< Of a short prompt, right after loading.
  double prompt_s = 0;   ///< What the same prompt takes once more.
  ResidentBytes loaded;  ///< Memory after loading.
  std::string cache;     ///< What became of the packed cache; empty = nothing to do.
};

struct BenchRun {
  std::unique_ptr<runtime::Runtime> runtime;
  FirstToken first;
  std::string type;  ///< That most bytes of the weights have.
  Machine machine;
  std::vector<Judged> results;

  std::string isa() const {
    const std::string_view name = runtime->executor->Name();
    return std::string(name.substr(name.find('-') + 1));
  }
};

std::string_view NameOf(kernels::PeakKind kind) {
  switch (kind) {
    case kernels::PeakKind::kInt8:
      return "int8";
    case kernels::PeakKind::kBf16:
      return "bf16";
    case kernels::PeakKind::kF32:
      return "f32";
  }
  return "";
}

std::string_view NameOf(exec::WeightSource source) {
  switch (source) {
    case exec::WeightSource::kModel:
      return "packed";
    case exec::WeightSource::kCache:
      return "cached";
    case exec::WeightSource::kMapped:
      return "mapped";
  }
  return "";
}

lab::Work WorkOf(const model::Model& model, KvType kv_type, const lab::Speed& speed, uint32_t tokens_per_step_max) {
  lab::Work work;
  const uint32_t depth = speed.shared_depth + speed.depth;
  if (speed.kind == lab::SpeedKind::kDecode) {
    for (uint32_t t = 0; t < speed.tokens; ++t)
      work += lab::WorkOfStep(model, kv_type, speed.batch, 1, depth + t, true, speed.shared_depth);
    return work;
  }
  for (uint32_t done = 0; done < speed.tokens;) {
    const uint32_t chunk = std::min(speed.tokens - done, tokens_per_step_max);
    work += lab::WorkOfStep(model, kv_type, 1, chunk, depth + done, done + chunk == speed.tokens);
    done += chunk;
  }
  return work;
}

Judged Judge(const lab::Speed& speed, const runtime::Runtime& runtime, const Machine& machine) {
  const uint32_t tokens_per_step_max = runtime.executor->Limits().tokens_per_step_max;
  Judged judged{.speed = speed, .work = WorkOf(*runtime.model, runtime.kv_type, speed, tokens_per_step_max)};
  const double memory_s = judged.work.bytes / machine.bytes_per_s;
  const double arithmetic_s =
      machine.multiply_adds_per_s > 0 ? judged.work.multiply_adds / machine.multiply_adds_per_s : 0;
  judged.memory_binds = memory_s >= arithmetic_s;
  judged.share = std::max(memory_s, arithmetic_s) / speed.SecondsAt(0.5);
  return judged;
}

absl::StatusOr<FirstToken> MeasureStart(const runtime::Runtime& runtime) {
  FirstToken first{.prompt_tokens = std::min(kFirstPromptTokens, runtime.executor->Limits().context_tokens_max),
                   .loaded = ResidentMemory()};
  const auto prompt = [&] {
    return lab::TimePrompt(*runtime.executor, *runtime.memory, runtime.clock, first.prompt_tokens);
  };
  KVIST_RETURN_IF_ERROR(prompt().status());
  first.at_s = SecondsSinceProcessStart();
  KVIST_ASSIGN_OR_RETURN(first.prompt_s, prompt());
  const exec::Weights& weights = runtime.cpu->weights();
  const absl::Status background = weights.WaitForBackground();  // Nothing else may run beside what is measured.
  if (weights.report().source == exec::WeightSource::kModel && !weights.report().cache_path.empty()) {
    first.cache = background.ok() ? "written" : std::string(background.message());
  }
  return first;
}

absl::StatusOr<BenchRun> Measure(BenchFlags& flags) {
  BenchRun run;
  flags.model.runtime.context_tokens_max = lab::TokensNeeded(flags.speed);
  flags.model.runtime.reuse = false;
  flags.model.runtime.requests_max = kBatchMax;
  KVIST_ASSIGN_OR_RETURN(const runtime::RuntimeOptions options, ResolveOptions(flags.model));
  KVIST_ASSIGN_OR_RETURN(run.runtime, runtime::Start(options));
  KVIST_ASSIGN_OR_RETURN(run.first, MeasureStart(*run.runtime));
  const model::Model& model = *run.runtime->model;
  const ModelSummary summary = Summarize(*model.file);
  const DType main = summary.types.empty() ? DType::kF32 : summary.types.front().dtype;
  run.type = InfoOf(main).name;

  StatusLine line;
  line.Show("reading memory");
  ThreadPool pool(run.runtime->threads);
  KVIST_ASSIGN_OR_RETURN(lab::ReadBandwidth bandwidth, lab::ReadBandwidth::Create(pool, summary.tensor_bytes));
  bandwidth.Measure(kBandwidthRounds);
  run.machine.kind = kernels::PeakKindOf(main);
  KVIST_ASSIGN_OR_RETURN(const kernels::Isa isa, kernels::ParseIsa(run.isa()));
  run.machine.multiply_adds_per_s = lab::PeakMultiplyAddsPerS(pool, isa, run.machine.kind);

  flags.speed.progress = [&](std::string_view name, uint32_t round) {
    line.Show(fmt::format("{}, round {} of {}", name, round, flags.speed.repetitions));
    return !Interrupted();
  };
  KVIST_ASSIGN_OR_RETURN(
      const std::vector<lab::Speed> speeds,
      lab::MeasureSpeed(*run.runtime->executor, *run.runtime->memory, run.runtime->clock, flags.speed));
  bandwidth.Measure(kBandwidthRounds);
  run.machine.bytes_per_s = bandwidth.MedianBytesPerS();
  run.machine.buffer_bytes = bandwidth.buffer_bytes();
  for (const lab::Speed& speed : speeds) run.results.push_back(Judge(speed, *run.runtime, run.machine));
  return run;
}

/// Median.
double HostMicroseconds(const lab::Speed& speed) {
  return speed.host_seconds[speed.host_seconds.size() / 2] * 1e6;
}

void PrintLoading(const BenchRun& run) {
  const runtime::StartTimes& times = run.runtime->times;
  const exec::LoadReport& report = run.runtime->cpu->weights().report();
  fmt::print("loaded in {:.2f} s ({} of weights {}{} in {:.2f} s; model opened in {:.2f} s, tokenizer in {:.2f} s)\n",
             times.total_s, FormatByteSize(run.runtime->cpu->weights().packed_bytes()), DescribeSource(report.source),
             report.cold ? ", from disk," : "", times.weights_s, times.open_s, times.text_s);
  fmt::print("first token of a prompt of {} after {:.2f} s, {:.2f} s of that for the prompt; memory after loading {}\n",
             run.first.prompt_tokens, run.first.at_s, run.first.prompt_s,
             FormatByteSize(run.first.loaded.anonymous + run.first.loaded.file));
  if (!run.first.cache.empty()) fmt::print("packed cache {}: {}\n", report.cache_path, run.first.cache);
}

void PrintTable(const BenchRun& run) {
  const Machine& machine = run.machine;
  fmt::print("{}: {}, {} threads, {}, keys and values in {}\n", run.runtime->model_id, run.type, run.runtime->threads,
             run.isa(), KvTypeName(run.runtime->kv_type));
  PrintLoading(run);
  fmt::print("this machine: reads {:.1f} GB/s (buffer of {})", machine.bytes_per_s * 1e-9,
             FormatByteSize(machine.buffer_bytes));
  if (machine.multiply_adds_per_s > 0) {
    fmt::print(", {:.2f} T multiply-adds/s of {}", machine.multiply_adds_per_s * 1e-12, NameOf(machine.kind));
  }
  fmt::print("\n\n{:<18} {:>10} {:>10} {:>8} {:>12} {:>8}   {:>6}\n", "", "tokens/s", "P90", "spread", "ms", "host us",
             "of the limit");
  for (const Judged& result : run.results) {
    const lab::Speed& speed = result.speed;
    const bool prompt = speed.kind == lab::SpeedKind::kPrompt;
    const double ms = speed.SecondsAt(0.5) * 1e3 / (prompt ? 1 : speed.tokens);
    fmt::print("{:<18} {:>10.1f} {:>10.1f} {:>6.0f} % {:>12} {:>8.0f}   {:>4.0f} % of {}\n", speed.name,
               speed.TokensPerS(0.5), speed.TokensPerS(0.9), speed.Spread() * 100,
               fmt::format("{:.2f} {}", ms, prompt ? "all" : "step"), HostMicroseconds(speed), result.share * 100,
               result.memory_binds ? "memory" : "arithmetic");
  }
  fmt::print(
      "\nMedian of {} rounds; nine of ten rounds reach P90. ms: to the first token, or of one step.\n"
      "host us: what of a step passes outside of the executor, in handing it over and taking its result.\n",
      run.results.front().speed.seconds.size());
}

boost::json::object Common(const BenchRun& run, std::string_view name, std::string_view kind) {
  return {{"name", name},
          {"kind", kind},
          {"model", run.runtime->model_id},
          {"type", run.type},
          {"threads", run.runtime->threads},
          {"isa", run.isa()},
          {"kv_type", KvTypeName(run.runtime->kv_type)}};
}

boost::json::object LoadJson(const BenchRun& run) {
  const runtime::StartTimes& times = run.runtime->times;
  const exec::Weights& weights = run.runtime->cpu->weights();
  boost::json::object load = Common(run, "load", "load");
  load["seconds"] = times.total_s;
  load["open_s"] = times.open_s;
  load["tokenizer_s"] = times.text_s;
  load["weights_s"] = times.weights_s;
  load["weights"] = NameOf(weights.report().source);
  load["cold"] = weights.report().cold;
  load["packed_bytes"] = weights.packed_bytes();
  load["cache_path"] = weights.report().cache_path;
  load["cache"] = run.first.cache;
  load["first_token_s"] = run.first.at_s;
  load["first_prompt_s"] = run.first.prompt_s;
  load["first_prompt_tokens"] = run.first.prompt_tokens;
  load["resident_bytes"] = {{"anonymous", run.first.loaded.anonymous}, {"file", run.first.loaded.file}};
  return load;
}

void PrintJson(const BenchRun& run) {
  const auto print = [](const boost::json::object& object) { fmt::print("{}\n", serve::JsonText(object)); };
  for (const Judged& result : run.results) {
    const lab::Speed& speed = result.speed;
    const bool prompt = speed.kind == lab::SpeedKind::kPrompt;
    const double median_s = speed.SecondsAt(0.5);
    boost::json::object object = Common(run, speed.name, prompt ? "prompt" : "decode");
    object["tokens"] = speed.tokens;
    object["batch"] = speed.batch;
    object["depth"] = speed.depth;
    object["shared_depth"] = speed.shared_depth;
    object["repetitions"] = speed.seconds.size();
    object["tokens_per_s"] = {{"median", speed.TokensPerS(0.5)},
                              {"p90", speed.TokensPerS(0.9)},
                              {"min", speed.TokensPerS(1)},
                              {"max", speed.TokensPerS(0)}};
    object["spread"] = speed.Spread();
    object["host_us"] = HostMicroseconds(speed);
    object[prompt ? "first_token_ms" : "step_ms"] = median_s * 1e3 / (prompt ? 1 : speed.tokens);
    object["bytes"] = result.work.bytes;
    object["multiply_adds"] = result.work.multiply_adds;
    object["limit"] = result.memory_binds ? "memory" : "arithmetic";
    object["share"] = result.share;
    print(object);
  }
  print(LoadJson(run));
  boost::json::object memory = Common(run, "memory", "machine");
  memory["bytes_per_s"] = run.machine.bytes_per_s;
  memory["buffer_bytes"] = run.machine.buffer_bytes;
  print(memory);
  boost::json::object arithmetic = Common(run, "arithmetic", "machine");
  arithmetic["of"] = NameOf(run.machine.kind);
  arithmetic["multiply_adds_per_s"] = run.machine.multiply_adds_per_s;
  print(arithmetic);
}

absl::Status WritePlot(const BenchRun& run, const std::string& path) {
  lab::Roofline roofline{.title = Cat(run.runtime->model_id, ", ", run.type),
                         .subtitle = Cat(run.runtime->threads, " threads, ", run.isa()),
                         .bytes_per_s = run.machine.bytes_per_s};
  roofline.roofs.push_back({Cat(run.isa(), " ", NameOf(run.machine.kind)), run.machine.multiply_adds_per_s});
  for (const Judged& result : run.results) {
    roofline.points.push_back({result.speed.name, result.work.multiply_adds / result.work.bytes,
                               result.work.multiply_adds / result.speed.SecondsAt(0.5)});
  }
  return WriteTextFile(path, lab::RooflineSvg(roofline));
}

int RunBench(BenchFlags& flags) {
  std::erase(flags.speed.prompts, 0u);
  if (flags.speed.prompts.empty() && flags.speed.decode_tokens == 0)
    throw CLI::ValidationError("-p 0 and -n 0 leave nothing to measure");
  CatchInterrupts();
  const absl::StatusOr<BenchRun> run = Measure(flags);
  if (!run.ok()) return Report("bench", run.status());
  if (flags.json) {
    PrintJson(*run);
  } else {
    PrintTable(*run);
  }
  absl::Status status = FlushOutput();
  if (status.ok() && !flags.plot.empty()) status = WritePlot(*run, flags.plot);
  return status.ok() ? 0 : Report("bench", status);
}

}  // namespace

void AddBench(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = app.add_subcommand(
      "bench", "Measure prompt processing and decoding, beside what this machine's memory and arithmetic allow");
  command->add_option("MODEL", flags->model.model, "GGUF file or the name of a fetched model; else the default model");
  const CLI::Validator count = WholeNumber(0, kTokensMax);
  command->add_option("-p,--prompt", flags->speed.prompts, "Prompt lengths, e.g. 512,4096; 0 = none")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(count)
      ->capture_default_str();
  command->add_option("-n,--decode", flags->speed.decode_tokens, "Decoded tokens of each sequence; 0 = none")
      ->transform(count)
      ->capture_default_str();
  command->add_option("--batch", flags->speed.batches, "Sequences that decode side by side, e.g. 1,8,32")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(WholeNumber(1, kBatchMax))
      ->capture_default_str();
  command->add_option("--depth", flags->speed.depths, "Tokens of context before the measured ones, e.g. 0,8192,32768")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(count)
      ->capture_default_str();
  command
      ->add_option("--shared-depth", flags->speed.shared_depth,
                   "Tokens of context before those of --depth that all have")
      ->transform(count)
      ->capture_default_str();
  command->add_flag("!--read-apart", flags->model.runtime.share_segments,
                    "Let each sequence read shared context for itself, to see what reading together brings");
  command->add_option("-r,--repetitions", flags->speed.repetitions, "Counted rounds")
      ->transform(WholeNumber(1, 1000))
      ->capture_default_str();
  AddModelFlags(*command, flags->model);
  command->add_option("--plot", flags->plot, "Write a roofline picture (SVG) to this file");
  command->add_flag("--json", flags->json, "One JSON object per result on standard output");
  command->footer(
      "The limit of memory counts all weights once a step, keys and values, and of a layer of experts those that the\n"
      "step's tokens are expected to need: N (1 - (1 - k/N)^tokens) of N with k used, which is k for one token.");
  command->callback([flags, &exit_code] { exit_code = RunBench(*flags); });
}

}  // namespace kvist::cli
