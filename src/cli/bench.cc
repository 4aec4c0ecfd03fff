/// @file
/// `kvist bench MODEL`: tokens per second of prompt processing and decoding.

#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "cli/commands.h"
#include "lab/speed.h"
#include "runtime/runtime.h"
#include "tensor/dtype.h"

namespace kvist::cli {
namespace {

struct BenchFlags {
  runtime::RuntimeOptions runtime;
  lab::SpeedOptions speed;
  bool json = false;
};

/// The type that most bytes of the model have.
std::string_view MainType(const GgufFile& file) {
  const GgufTensor* largest = nullptr;
  for (const GgufTensor& tensor : file.tensors()) {
    if (largest == nullptr || tensor.bytes.size() > largest->bytes.size()) largest = &tensor;
  }
  return largest == nullptr ? "none" : InfoOf(largest->dtype).name;
}

int RunBench(const BenchFlags& flags) {
  absl::StatusOr<std::unique_ptr<runtime::Runtime>> runtime = runtime::Start(flags.runtime);
  absl::Status status = runtime.status();
  absl::StatusOr<std::vector<lab::Speed>> speeds;
  if (status.ok()) {
    speeds = lab::MeasureSpeed(*(*runtime)->executor, *(*runtime)->memory, (*runtime)->clock, flags.speed);
    status = speeds.status();
  }
  if (!status.ok()) {
    fmt::print(stderr, "kvist bench: {}\n", std::string(status.message()));
    return 1;
  }
  const std::string_view isa = (*runtime)->executor->Name();
  for (const lab::Speed& speed : *speeds) {
    if (!flags.json) {
      fmt::print("{:<14} {:>10.1f} tokens/s   min {:.1f}, max {:.1f}   {} threads, {}\n", speed.name, speed.median(),
                 speed.tokens_per_s.front(), speed.tokens_per_s.back(), (*runtime)->threads, isa);
      continue;
    }
    const boost::json::object line{
        {"name", speed.name},
        {"model", (*runtime)->model_id},
        {"type", MainType(*(*runtime)->model->file)},
        {"threads", (*runtime)->threads},
        {"isa", isa.substr(isa.find('-') + 1)},
        {"tokens_per_s",
         {{"median", speed.median()}, {"min", speed.tokens_per_s.front()}, {"max", speed.tokens_per_s.back()}}}};
    fmt::print("{}\n", boost::json::serialize(line));
  }
  return 0;
}

}  // namespace

void AddBench(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = app.add_subcommand("bench", "Measure tokens per second of prompt processing and decoding");
  command->add_option("MODEL", flags->runtime.model_path, "Model file")->required();
  command->add_option("-p,--prompt", flags->speed.prompt_tokens, "Prompt tokens; 0 = skip")->capture_default_str();
  command->add_option("-n,--decode", flags->speed.decode_tokens, "Decoded tokens; 0 = skip")->capture_default_str();
  command->add_option("-t,--threads", flags->runtime.threads, "Threads; 0 = every core")->check(CLI::Range(0, 1024));
  command->add_option("-r,--repetitions", flags->speed.repetitions, "Counted repetitions")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--batch", flags->speed.batch, "Sequences that decode side by side")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--context-tokens", flags->speed.context_tokens, "Tokens before the first decoded one");
  command->add_option("--isa", flags->runtime.isa, "reference, avx2 or avx512; default: the fastest here");
  command->add_flag("--json", flags->json, "One JSON object per result on standard output");
  command->callback([flags, &exit_code] { exit_code = RunBench(*flags); });
}

}  // namespace kvist::cli
